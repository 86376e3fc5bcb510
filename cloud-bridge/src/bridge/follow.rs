//! Follows the API: one watch of all pods for all nodes, one small watch per ConfigMap or Secret while a pod of
//! ours names it. Feeds `world` and carries out its effects.
//!
//! One pod watch costs the API server one connection however many nodes there are, and costs this process the
//! parsing of events of foreign pods; of those nothing is kept. ConfigMaps and Secrets are watched one by one, as
//! kubelets do, because that is all that the rights of a node allow, and because a namespace may hold thousands
//! of others.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use edge_protocol::message::{Object, ObjectKey};
use edge_protocol::state::StateError;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt, TryStreamExt};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Shared;
use super::clients::Clients;
use super::lanes::Outcome;
use super::reports;
use super::requests::Requests;
use super::watched::{BoundPod, WatchedPod, config_object};
use super::world::{Effect, World};

/// Pause before a question to the API that failed is asked again.
const AGAIN: Duration = Duration::from_secs(2);

/// What others ask of the follower.
#[derive(Debug)]
pub(super) enum Command {
    /// Keep the pods of this node from now on.
    Add(String),
    /// This node has connected.
    Connected(String),
    /// The node is gone for good.
    Drop(String),
    /// A node holds this and no list names it: is it gone?
    LookUp { node: String, key: ObjectKey, uid: String },
}

/// News of one ConfigMap or Secret.
struct News {
    key: ObjectKey,
    /// Which of the watches of this key speaks: an ended one is not listened to.
    watch: u64,
    what: What,
}

enum What {
    Present(Object),
    Absent,
    Failed,
}

/// Answers of the API to single questions.
enum Answer {
    Seed {
        node: String,
        pods: Vec<BoundPod>,
    },
    /// A pod that a list lacked is gone indeed.
    Gone {
        node: String,
        key: ObjectKey,
        uid: String,
    },
    Nothing,
}

type Questions = FuturesUnordered<BoxFuture<'static, Answer>>;

/// Follows until the bridge is gone.
pub(super) async fn run(shared: Weak<Shared>, clients: Clients, mut commands: mpsc::UnboundedReceiver<Command>) {
    let (sender, mut news) = mpsc::unbounded_channel();
    let mut follower = Follower {
        shared,
        world: World::default(),
        questions: Questions::new(),
        watches: HashMap::new(),
        counter: 0,
        news: sender,
        listing: None,
        clients,
    };
    let pods: Api<WatchedPod> = Api::all(follower.clients.own().clone());
    let mut pods = pin!(watcher(pods, watcher::Config::default()).default_backoff());
    loop {
        tokio::select! {
            biased;
            command = commands.recv() => match command {
                Some(command) => follower.command(command),
                None => break,
            },
            Some(answer) = follower.questions.next(), if !follower.questions.is_empty() => follower.answer(answer),
            Some(news) = news.recv() => follower.news(news),
            event = pods.next() => match event {
                Some(Ok(event)) => follower.pods(event),
                Some(Err(error)) => log::warn!("watching pods: {error}"),
                None => break,
            },
        }
    }
    for (_, (_, task)) in follower.watches {
        task.abort();
    }
}

struct Follower {
    shared: Weak<Shared>,
    clients: Clients,
    world: World,
    questions: Questions,
    watches: HashMap<ObjectKey, (u64, JoinHandle<()>)>,
    counter: u64,
    news: mpsc::UnboundedSender<News>,
    /// Uids of the list of all pods that is being read.
    listing: Option<HashSet<String>>,
}

impl Follower {
    fn command(&mut self, command: Command) {
        match command {
            Command::Add(node) => {
                self.world.add_node(&node);
                let pods: Api<WatchedPod> = Api::all(self.clients.own().clone());
                self.questions.push(seed(pods, node).boxed());
            }
            Command::Connected(node) => {
                let effects = self.world.connected(&node);
                self.apply(effects);
            }
            Command::Drop(node) => {
                let effects = self.world.drop_node(&node);
                self.apply(effects);
            }
            Command::LookUp { node, key, uid } => {
                if key.kind == "Pod" || !self.world.uses(&node, &key) {
                    self.ask_if_gone(node, key, uid);
                }
            }
        }
    }

    fn ask_if_gone(&mut self, node: String, key: ObjectKey, uid: String) {
        let client = if key.kind == "Pod" { self.clients.own().clone() } else { self.clients.as_node(&node) };
        self.questions.push(is_gone(client, node, key, uid).boxed());
    }

    fn answer(&mut self, answer: Answer) {
        let effects = match answer {
            Answer::Seed { node, pods } => self.world.seed(&node, pods),
            Answer::Gone { node, key, uid } if key.kind == "Pod" => self.world.pod_deleted(&node, &key, &uid),
            Answer::Gone { node, key, uid } => vec![Effect::Remove { node, key, uid }],
            Answer::Nothing => Vec::new(),
        };
        self.apply(effects);
    }

    fn pods(&mut self, event: Event<WatchedPod>) {
        match event {
            Event::Init => self.listing = Some(HashSet::new()),
            Event::InitApply(pod) => {
                if let Some(listing) = &mut self.listing
                    && self.world.is_ours(pod.node())
                {
                    listing.insert(pod.uid().to_owned());
                }
                self.pod(pod);
            }
            Event::InitDone => {
                let listed = self.listing.take().unwrap_or_default();
                // A list that lacks a pod is not yet a deletion: ask for each by name.
                for (node, key, uid) in self.world.missing(&listed) {
                    self.ask_if_gone(node, key, uid);
                }
            }
            Event::Apply(pod) => self.pod(pod),
            Event::Delete(pod) => {
                let effects = self.world.pod_deleted(pod.node(), &pod.key(), pod.uid());
                self.apply(effects);
            }
        }
    }

    fn pod(&mut self, pod: WatchedPod) {
        if !self.world.is_ours(pod.node()) {
            return;
        }
        if let Some(pod) = pod.into_bound() {
            let effects = self.world.pod_applied(pod);
            self.apply(effects);
        }
    }

    fn news(&mut self, News { key, watch, what }: News) {
        if self.watches.get(&key).is_none_or(|(current, _)| *current != watch) {
            return;
        }
        let effects = match what {
            What::Present(object) => self.world.object_present(object),
            What::Absent => self.world.object_absent(&key),
            What::Failed => self.world.object_failed(&key),
        };
        self.apply(effects);
    }

    fn apply(&mut self, effects: Vec<Effect>) {
        let Some(shared) = self.shared.upgrade() else { return };
        for effect in effects {
            match effect {
                Effect::Set { node, object } => change(&shared, &node, |state| {
                    state.set(Object::clone(&object))?;
                    Ok(())
                }),
                Effect::Remove { node, key, uid } => change(&shared, &node, |state| {
                    state.remove(&key, &uid);
                    Ok(())
                }),
                Effect::Withdraw { node, key, uid } => change(&shared, &node, |state| {
                    state.withdraw(&key, &uid);
                    Ok(())
                }),
                Effect::Listed { node } => change(&shared, &node, |state| {
                    state.listed();
                    Ok(())
                }),
                Effect::Watch { key, node } => self.watch(key, &node),
                Effect::Unwatch { key } => {
                    if let Some((_, task)) = self.watches.remove(&key) {
                        task.abort();
                    }
                }
                Effect::RestoreReady { node, key, uid } => {
                    if shared.known(&node).is_some_and(|node| node.link().is_some()) {
                        let requests = Requests::new(self.clients.as_node(&node));
                        self.questions.push(restore_ready(requests, key, uid).boxed());
                    }
                }
                Effect::FinishMirror { node, key, uid } => {
                    let requests = Requests::new(self.clients.as_node(&node));
                    self.questions.push(finish_mirror(requests, key, uid).boxed());
                }
            }
        }
    }

    fn watch(&mut self, key: ObjectKey, node: &str) {
        self.counter += 1;
        let watch = self.counter;
        let client = self.clients.as_node(node);
        let task = tokio::spawn(watch_object(client, key.clone(), watch, self.news.clone()));
        if let Some((_, old)) = self.watches.insert(key, (watch, task)) {
            old.abort();
        }
    }
}

/// Changes what a node should hold, and wakes its connection.
fn change<F>(shared: &Arc<Shared>, node: &str, change: F)
where
    F: FnOnce(&mut edge_protocol::state::NodeState) -> Result<(), StateError>,
{
    let Some(node) = shared.known(node) else { return };
    let outcome = change(&mut node.state());
    match outcome {
        // A deletion and a late event of the same object: nothing new.
        Ok(()) | Err(StateError::Deleted { .. }) => node.changed.notify_one(),
        Err(error) => log::error!("node {}: {error}", node.name),
    }
}

/// The pods of a node, asked until the API answers.
async fn seed(pods: Api<WatchedPod>, node: String) -> Answer {
    let mut parameters = ListParams::default().fields(&format!("spec.nodeName={node}")).limit(500);
    let mut found = Vec::new();
    loop {
        match pods.list(&parameters).await {
            Ok(page) => {
                let next = page.metadata.continue_.clone().filter(|token| !token.is_empty());
                found.extend(page.items.into_iter().filter_map(WatchedPod::into_bound));
                match next {
                    Some(token) => parameters = parameters.continue_token(&token),
                    None => return Answer::Seed { node, pods: found },
                }
            }
            Err(error) => {
                log::warn!("listing the pods of node {node}: {error}");
                // A page that has expired: from the start.
                found.clear();
                parameters.continue_token = None;
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Whether the API has no such object any more, or another one of the same name, or gave it to another node.
async fn is_gone(client: Client, node: String, key: ObjectKey, uid: String) -> Answer {
    let path = match key.kind.as_str() {
        "Pod" => "pods",
        "ConfigMap" => "configmaps",
        "Secret" => "secrets",
        _ => return Answer::Nothing,
    };
    let resource = resource(&key.kind, path);
    let api: Api<DynamicObject> = Api::namespaced_with(client, &key.namespace, &resource);
    loop {
        let gone = match api.get_opt(&key.name).await {
            Ok(None) => true,
            Ok(Some(found)) => found.metadata.uid.as_deref().is_some_and(|found| found != uid),
            // What a node has no right to read any more is of no use to it, but that is not for us to conclude.
            Err(kube::Error::Api(status)) if status.is_forbidden() => false,
            Err(error) => {
                log::warn!("asking for {} {}/{}: {error}", key.kind, key.namespace, key.name);
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        return if gone { Answer::Gone { node, key, uid } } else { Answer::Nothing };
    }
}

async fn restore_ready(requests: Requests, key: ObjectKey, uid: String) -> Answer {
    log_failure(&key, "calling it ready again", reports::restore_ready(&requests, &key, &uid).await);
    Answer::Nothing
}

async fn finish_mirror(requests: Requests, key: ObjectKey, uid: String) -> Answer {
    log_failure(&key, "finishing its deletion", reports::delete_pod(&requests, &key, &uid).await);
    Answer::Nothing
}

fn log_failure(key: &ObjectKey, what: &str, outcome: Outcome) {
    if let Outcome::Refused(reason) | Outcome::Retry(reason) = outcome {
        log::warn!("pod {}/{}: {what}: {reason}", key.namespace, key.name);
    }
}

/// Follows one object until aborted.
async fn watch_object(client: Client, key: ObjectKey, watch: u64, news: mpsc::UnboundedSender<News>) {
    let resource = resource(&key.kind, if key.kind == "Secret" { "secrets" } else { "configmaps" });
    let api: Api<DynamicObject> = Api::namespaced_with(client, &key.namespace, &resource);
    let config = watcher::Config::default().fields(&format!("metadata.name={}", key.name));
    let mut events = pin!(watcher(api, config).default_backoff());
    let mut listed = None;
    loop {
        let what = match events.try_next().await {
            Ok(None) => return,
            Ok(Some(Event::Init)) => {
                listed = None;
                continue;
            }
            Ok(Some(Event::InitApply(object))) => {
                listed = Some(object);
                continue;
            }
            Ok(Some(Event::InitDone)) => listed.take().map_or(Some(What::Absent), |object| present(&key, object)),
            Ok(Some(Event::Apply(object))) => present(&key, object),
            Ok(Some(Event::Delete(_))) => Some(What::Absent),
            Err(error) => {
                log::warn!("watching {} {}/{}: {error}", key.kind, key.namespace, key.name);
                Some(What::Failed)
            }
        };
        let Some(what) = what else { continue };
        if news.send(News { key: key.clone(), watch, what }).is_err() {
            return;
        }
    }
}

/// An answer that is not the object asked for is no news.
fn present(key: &ObjectKey, object: DynamicObject) -> Option<What> {
    config_object(&key.kind, object).filter(|object| object.digest.key == *key).map(What::Present)
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: String::new(),
        version: "v1".to_owned(),
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}
