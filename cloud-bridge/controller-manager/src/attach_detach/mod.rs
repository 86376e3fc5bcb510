//! Attaches volumes of CSI drivers to the nodes of the pods that use them, and detaches them (K8s
//! pkg/controller/volume/attachdetach): it makes and deletes VolumeAttachments, which the driver's external-attacher
//! carries out, and reports attached volumes in `status.volumesAttached` of the Node. This file follows the API and
//! calls [`plan`]; `state` has the indexes, `perform` writes.

mod object;
mod perform;
mod plan;
mod state;
mod told;
mod watches;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use kube::Client;
use kube::runtime::watcher::Event;
use tokio::time::Instant;

use crate::events::Recorder;
use crate::pods::Pods;
use apimachinery::pace::Pace;
use object::Attachment;
use perform::Done;
use plan::Blocked;
use state::State;
use watches::{KINDS, Kind, Named, Object};

/// Maximum number of nodes that are written about at a time.
const AT_ONCE: usize = 16;
/// What could not be written is tried again after this, doubled up to the second figure.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(120));

/// Runs until dropped.
pub async fn run(client: Client, pods: Pods) {
    watches::until_needed(&client).await;
    let mut watched = pin!(watches::all(&client, &pods));
    let mut controller = Controller::new(client);
    let mut pace = Pace::default();
    loop {
        let due = controller.due();
        tokio::select! {
            biased;
            Some((kind, event)) = watched.next() => match event {
                Ok(event) => controller.watched(kind, event, &mut pace).await,
                Err(error) => log::warn!("attachments: watching {kind:?}s: {error}"),
            },
            Some(done) = controller.running.next(), if !controller.running.is_empty() => controller.done(done),
            () = until(due) => controller.act(),
            () = controller.events.write_next(), if !controller.events.is_empty() => {}
        }
        pace.look().await;
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) if due <= Instant::now() => tokio::task::yield_now().await,
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

struct Controller {
    client: Client,
    state: State,
    /// Attachments that are being created, or may exist.
    making: BTreeMap<String, Attachment>,
    running: FuturesUnordered<BoxFuture<'static, Done>>,
    /// The nodes that are written about, and whether they have changed meanwhile.
    busy: BTreeMap<String, bool>,
    /// The nodes of which a write failed: when the next attempt is, unless it has begun, and the pause before it.
    failed: BTreeMap<String, (Option<Instant>, Duration)>,
    /// The blocked attachments of each node that events were made for.
    told: BTreeMap<String, BTreeSet<String>>,
    events: Recorder,
    /// Objects that were known when the running lists began, and that they have not named so far.
    unlisted: BTreeMap<Kind, BTreeSet<String>>,
    /// Kinds of which a list has ended.
    known: BTreeSet<Kind>,
}

impl Controller {
    fn new(client: Client) -> Self {
        Self {
            events: Recorder::new(client.clone()),
            client,
            state: State::default(),
            making: BTreeMap::new(),
            running: FuturesUnordered::new(),
            busy: BTreeMap::new(),
            failed: BTreeMap::new(),
            told: BTreeMap::new(),
            unlisted: BTreeMap::new(),
            known: BTreeSet::new(),
        }
    }

    /// When there is something to decide. With half of the objects a volume in use would be detached.
    fn due(&self) -> Option<Instant> {
        if self.known.len() < KINDS.len() || self.running.len() >= AT_ONCE {
            return None;
        }
        if self.state.is_dirty() {
            return Some(Instant::now());
        }
        self.failed.values().filter_map(|(due, _)| *due).min()
    }

    async fn watched(&mut self, kind: Kind, event: Event<Named>, pace: &mut Pace) {
        match event {
            Event::Init => {
                self.known.remove(&kind);
                let names: BTreeSet<String> = pace.collect(names(&self.state, kind)).await;
                self.unlisted.insert(kind, names);
            }
            Event::InitApply((name, object)) => {
                self.unlisted.entry(kind).or_default().remove(&name);
                self.put(&name, object);
            }
            Event::InitDone => {
                for name in self.unlisted.remove(&kind).unwrap_or_default() {
                    self.gone(kind, &name);
                    pace.look().await;
                }
                self.known.insert(kind);
            }
            Event::Apply((name, object)) => self.put(&name, object),
            Event::Delete((name, _)) => self.gone(kind, &name),
        }
    }

    fn put(&mut self, name: &str, object: Object) {
        match object {
            Object::Attachment(attachment) => {
                let news = self.state.attachment(name, attachment);
                if let Some(news) = news {
                    let told = told::of_attachment(&self.state, name, &news);
                    told.into_iter().for_each(|event| self.events.record(event));
                }
            }
            Object::Driver(attach) => self.state.driver(name, attach),
            Object::Node(node) => self.state.node(name, Some(node)),
            Object::Pod(pod) => self.state.pod(name, pod),
            Object::Volume(volume) => self.state.volume(name, volume),
        }
    }

    fn gone(&mut self, kind: Kind, name: &str) {
        match kind {
            Kind::Attachment => drop(self.state.attachment(name, None)),
            Kind::Driver => self.state.driver(name, true),
            Kind::Node => {
                self.state.node(name, None);
                self.told.remove(name);
            }
            Kind::Pod => self.state.pod(name, None),
            Kind::Volume => self.state.volume(name, None),
        }
    }

    /// Decides about the next node.
    fn act(&mut self) {
        let Some(node) = self.state.next() else { return self.retry() };
        if let Some(changed) = self.busy.get_mut(&node) {
            *changed = true;
            return;
        }
        let paused = self.failed.get(&node).and_then(|(due, _)| *due);
        if paused.is_some_and(|due| due > Instant::now()) {
            return;
        }
        let plan = plan::plan(&self.state, &self.making, &node);
        self.tell_blocked(&node, &plan.blocked);
        if plan.report.is_none() && plan.delete.is_empty() && plan.create.is_empty() {
            self.failed.remove(&node);
            return;
        }
        for one in &plan.create {
            let attachment = Attachment { node: node.clone(), volume: one.volume.clone(), ..Attachment::default() };
            self.making.insert(one.name.clone(), attachment);
        }
        let uid = self.state.nodes.get(&node).map(|node| node.uid.clone()).unwrap_or_default();
        self.busy.insert(node.clone(), false);
        self.running.push(perform::perform(self.client.clone(), node, uid, plan).boxed());
    }

    /// Marks the nodes whose pause after a failure is over.
    fn retry(&mut self) {
        let now = Instant::now();
        for (node, (due, _)) in &mut self.failed {
            if due.take_if(|due| *due <= now).is_some() {
                self.state.mark(node);
            }
        }
    }

    fn done(&mut self, done: Done) {
        for attachment in done.made.iter().filter_map(|name| self.making.remove(name)) {
            // Another node may wait for its end.
            self.state.mark_waiting(&attachment.volume);
        }
        for (name, attachment) in done.created {
            // The watch may have delivered a newer state.
            if !self.state.attachments.contains_key(&name) {
                self.state.attachment(&name, Some(attachment));
            }
        }
        for name in &done.gone {
            self.state.attachment(name, None);
        }
        if self.busy.remove(&done.node).unwrap_or_default() {
            self.state.mark(&done.node);
        }
        match done.failure {
            None => drop(self.failed.remove(&done.node)),
            Some(why) => {
                let pause = self.failed.get(&done.node).map_or(AGAIN.0, |(_, pause)| (*pause * 2).min(AGAIN.1));
                log::info!("attachments of node {}: {why}; next attempt in {} s", done.node, pause.as_secs());
                self.failed.insert(done.node, (Instant::now().checked_add(pause), pause));
            }
        }
    }

    /// Events for the pods whose volumes are attached elsewhere, once for each attachment.
    fn tell_blocked(&mut self, node: &str, blocked: &[Blocked]) {
        if blocked.is_empty() {
            self.told.remove(node);
            return;
        }
        let before = self.told.remove(node).unwrap_or_default();
        for one in blocked.iter().filter(|one| !before.contains(&one.name)) {
            told::of_blocked(&self.state, one).into_iter().for_each(|event| self.events.record(event));
        }
        self.told.insert(node.to_owned(), blocked.iter().map(|one| one.name.clone()).collect());
    }
}

/// The known objects of a kind.
fn names(state: &State, kind: Kind) -> Box<dyn Iterator<Item = String> + Send + '_> {
    match kind {
        Kind::Attachment => Box::new(state.attachments.keys().cloned()),
        Kind::Driver => Box::new(state.unattached().cloned()),
        Kind::Node => Box::new(state.nodes.keys().cloned()),
        Kind::Pod => Box::new(state.pods.keys().cloned()),
        Kind::Volume => Box::new(state.volumes.keys().cloned()),
    }
}
