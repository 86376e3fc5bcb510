//! Follows the API: one watch of all pods for all nodes, and one small watch per ConfigMap or Secret while a pod of a
//! connected node names it. Feeds `world` and executes its effects.
//!
//! One pod watch costs the API server one connection for any number of nodes. This process has to parse events of
//! foreign pods, but keeps nothing of them. ConfigMaps and Secrets are watched one by one, as kubelets do: nodes have
//! no right to more, and a namespace may hold thousands of others.

mod admit;
mod answer;
mod ask;
mod claims;
pub(super) mod command;
mod effects;
mod gone;
mod kept_policies;
mod labels;
mod look_up;
mod news;
mod object;
mod peers;
mod policy_views;
mod service_links;
mod service_views;
mod service_watch;
mod site_view;
mod views;

use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::pin;
use std::sync::Weak;
use std::time::Instant;

use edge_protocol::message::ObjectKey;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::clients::Clients;
use super::requests::Requests;
use super::shared::Shared;
use super::sites::Sites;
use super::slim::{BoundPod, SlimPod};
use super::told::kinds::Kind;
use super::world::{Effect, Group, World};
use admit::Admissions;
use answer::{Admission, Answer};
use apimachinery::pace::Pace;
use apimachinery::panics;
use apimachinery::well_known::PAGE;
use ask::{pods_to_reconcile, reconcile_tolerations, seed, seed_many, tolerations};
use command::{Command, Wanted};
use gone::IsGone;
use look_up::LookUps;
use news::{News, What};
use peers::Peers;
use service_watch::ServiceWatches;

/// Up to this number of nodes their pods are listed by node; beyond it, one list of all pods is less work for the API.
const FEW: usize = 8;

/// Maximum number of queued changes of single objects; beyond it, watches wait.
const NEWS: usize = 256;

type Questions = FuturesUnordered<BoxFuture<'static, Answer>>;

/// Follows until the bridge ends.
pub(super) async fn run(shared: Weak<Shared>, clients: Clients, mut commands: mpsc::UnboundedReceiver<Command>) {
    let (sender, mut news) = mpsc::channel(NEWS);
    let Some(present) = shared.upgrade() else { return };
    let (service_scope, sites) = (present.settings.service_scope, present.sites.subscribe());
    let pods_seen = present.settings.pods_seen.clone();
    let mut world = World::new(service_scope);
    world.withhold_lists(present.settings.lists_withheld);
    drop(present);
    let mut informers = Informers {
        shared,
        world,
        begun: Instant::now(),
        questions: Questions::new(),
        watches: HashMap::new(),
        counter: 0,
        news: sender,
        listing: false,
        unswept: Vec::new(),
        unseeded: HashSet::new(),
        seeding: false,
        admissions: Admissions::default(),
        look_ups: LookUps::default(),
        effects: VecDeque::new(),
        service_watches: ServiceWatches::default(),
        job_readings: VecDeque::new(),
        sites,
        peers: Peers::new(clients.own().clone()),
        clients,
    };
    let pods: Api<SlimPod> = Api::all(informers.clients.own().clone());
    let mut pods = pin!(watcher(pods, watcher::Config::default().page_size(PAGE)).default_backoff());
    let mut pace = Pace::default();
    loop {
        pace.look().await;
        // All effects of one event are executed before the next event.
        if !informers.effects.is_empty() {
            step("what follows from an event", || informers.carry_out());
            continue;
        }
        if let Some(node) = informers.unswept.pop() {
            step("the list of all pods", || informers.sweep(&node));
            continue;
        }
        // In random order: answers of an API in this process arrive by the thousand, and would use up every step.
        tokio::select! {
            command = commands.recv() => match command {
                Some(command) => step("a question about a node", || informers.command(command)),
                None => break,
            },
            Some(answer) = informers.questions.next(), if !informers.questions.is_empty() => {
                step("an answer of the API", || informers.answer(answer));
            }
            Some(news) = news.recv() => {
                let key = &news.key;
                step(format!("{} {}/{}", key.kind, key.namespace, key.name), || informers.news(news));
            }
            event = pods.next() => match event {
                Some(Ok(event)) => step(about(&event), || {
                    pods_seen.as_ref().inspect(|seen| seen(&event));
                    informers.pods(event);
                }),
                Some(Err(error)) => log::warn!("watching pods: {error}"),
                None => break,
            },
        }
    }
    for (_, (_, task)) in informers.watches {
        task.abort();
    }
}

/// Runs a step and catches panics: an unexpected object must not end the watches of all others. The effects of that
/// step are lost.
fn step(about: impl Into<String>, step: impl FnOnce()) {
    // The hook has logged the panic.
    let _ = panics::shield(about, step);
}

fn about(event: &Event<SlimPod>) -> String {
    match event {
        Event::Apply(pod) | Event::InitApply(pod) | Event::Delete(pod) => {
            let key = pod.key();
            format!("node {}: pod {}/{}", pod.node(), key.namespace, key.name)
        }
        Event::Init | Event::InitDone => "the list of all pods".to_owned(),
    }
}

struct Informers {
    shared: Weak<Shared>,
    clients: Clients,
    world: World,
    begun: Instant,
    questions: Questions,
    watches: HashMap<ObjectKey, (u64, JoinHandle<()>)>,
    counter: u64,
    news: mpsc::Sender<News>,
    /// The list of all pods is being read.
    listing: bool,
    /// Nodes whose pods must still be prepared for the list that has begun, or compared with the one that has ended.
    unswept: Vec<String>,
    /// Nodes whose pods must still be requested.
    unseeded: HashSet<String>,
    /// Whether a list for nodes is under way.
    seeding: bool,
    admissions: Admissions,
    look_ups: LookUps,
    /// Pods that NetworkPolicies may select.
    peers: Peers,
    /// Effects to carry out, in order.
    effects: VecDeque<Effect>,
    service_watches: ServiceWatches,
    /// Requested readings of all jobs, each with its round of the world.
    job_readings: VecDeque<(u64, u64)>,
    sites: watch::Receiver<Sites>,
}

impl Informers {
    fn command(&mut self, command: Command) {
        match command {
            Command::Add(node) => {
                self.world.add_node(&node);
            }
            Command::Connected { node, session, resumed, wants } => {
                let Wanted { wants, orders, interests } = wants;
                let effects = self.world.takes_orders(&node, orders);
                self.apply(effects);
                let effects = self.world.connected(&node);
                self.apply(effects);
                let site = self.sites.borrow().of(&node).map(str::to_owned);
                let effects = self.world.wants(&node, wants, site.as_deref());
                self.apply(effects);
                let effects = self.world.interested(&node, &interests, self.begun.elapsed());
                self.apply(effects);
                if !resumed {
                    self.world.refresh(&node, session);
                    self.unseeded.insert(node);
                    self.seed();
                }
            }
            Command::Located(Some(node)) => {
                let site = self.sites.borrow().of(&node).map(str::to_owned);
                let effects = self.world.located(&node, site.as_deref());
                self.apply(effects);
            }
            Command::Located(None) => {
                let effects = self.world.all_located();
                self.apply(effects);
            }
            Command::Interested { node, session, interests } => {
                let present = self.shared.upgrade().is_some_and(|shared| shared.is_present(&node, session));
                if present {
                    let effects = self.world.interested(&node, &interests, self.begun.elapsed());
                    self.apply(effects);
                }
            }
            Command::Orders { reading, changed } => {
                let effects = self.orders(reading, changed);
                self.apply(effects);
            }
            Command::Drop(node) => {
                let effects = self.world.drop_node(&node);
                self.apply(effects);
            }
            Command::ReconcileTolerations(node) => {
                let pods: Api<SlimPod> = Api::all(self.clients.own().clone());
                self.questions.push(pods_to_reconcile(pods, Weak::clone(&self.shared), node).boxed());
            }
            // Also for an object that a pod here names: its name may belong to another object by now.
            Command::LookUp { node, session, key, uid } => {
                let shared = Weak::clone(&self.shared);
                let present = {
                    let node = node.clone();
                    move || shared.upgrade().is_some_and(|shared| shared.is_present(&node, session))
                };
                self.questions.extend(self.look_ups.ask(&self.clients, node, key, uid, present));
            }
        }
    }

    /// Requests the pods of new nodes: while one list is under way, further nodes wait for the next.
    fn seed(&mut self) {
        if self.seeding {
            return;
        }
        let pods: Api<SlimPod> = Api::all(self.clients.own().clone());
        let nodes = std::mem::take(&mut self.unseeded);
        self.seeding = !nodes.is_empty();
        if !self.seeding {
            return;
        }
        let round = self.world.round();
        if nodes.len() > FEW {
            self.questions.push(seed_many(pods, nodes, round).boxed());
        } else {
            let each = nodes.into_iter().map(move |node| seed(pods.clone(), node));
            let all = futures::future::join_all(each);
            self.questions.push(all.map(move |all| Answer::Seeds { all, round }).boxed());
        }
    }

    /// Stores the orders of nodes, as of this reading.
    fn orders(&mut self, reading: u64, changed: Vec<(String, Group)>) -> Vec<Effect> {
        let mut round = None;
        while let Some((_, of)) = self.job_readings.pop_front_if(|(ticket, _)| *ticket <= reading) {
            round = Some(of);
        }
        self.world.orders(round, changed)
    }

    fn ask_if_gone(&mut self, node: String, key: ObjectKey, uid: String) {
        let question = self.is_gone(node, key, uid);
        self.questions.push(question.ask().boxed());
    }

    fn is_gone(&self, node: String, key: ObjectKey, uid: String) -> IsGone<impl Fn() -> bool + Send + Sync + use<>> {
        let (client, own, wanted) = (self.clients.as_node(&node), self.clients.own().clone(), self.known(&node));
        IsGone { client, own, node, key, uid, wanted }
    }

    /// Returns a check whether the node is still known.
    fn known(&self, node: &str) -> impl Fn() -> bool + Send + Sync + use<> {
        let (shared, node) = (Weak::clone(&self.shared), node.to_owned());
        move || shared.upgrade().is_some_and(|shared| shared.known(&node).is_some())
    }

    fn answer(&mut self, answer: Answer) {
        let effects = match answer {
            Answer::Found(pod) => return self.pod(*pod, World::pod_found),
            Answer::Replaced { node, key, uid, by } => {
                let effects = self.world.pod_gone(&node, &key, &uid);
                self.apply(effects);
                return self.pod(*by, World::pod_found);
            }
            Answer::Tolerations(patches) => {
                return patches.into_iter().for_each(|(key, patch)| self.patch_tolerations(key, patch));
            }
            Answer::Seeds { all, round } => {
                self.seeding = false;
                self.seed();
                all.into_iter().flat_map(|(node, pods, at)| self.world.seed(&node, round, pods, at)).collect()
            }
            Answer::Gone { node, key, uid } if Kind::Pod.is(&key) => self.world.pod_gone(&node, &key, &uid),
            Answer::Gone { node, key, uid } => vec![Effect::Remove { node, key, uid }],
            // The watch does not show yet that no pod names it, or a new pod names it.
            Answer::Useless { node, key, uid } if self.world.uses(&node, &key) => {
                let question = self.is_gone(node, key, uid);
                return self.questions.push(question.ask_again().boxed());
            }
            Answer::Useless { node, key, uid } => vec![Effect::Withdraw { node, key, uid }],
            Answer::Unlisted { node, key, uid } => self.world.unlisted(&node, &key, &uid),
            Answer::Admission(Admission { node, key, may_read: true, .. }) => {
                self.admissions.forget(&node, &key);
                self.world.admitted(&node, &key)
            }
            Answer::Admission(refused) => {
                let (effects, again) = self.world.not_admitted(&refused.node, &refused.key);
                if again {
                    self.questions.push(self.admissions.ask_again(&self.clients, refused));
                } else {
                    self.admissions.forget(&refused.node, &refused.key);
                }
                effects
            }
            Answer::LookedUp { node, object, answer } => {
                self.look_ups.answered(&node, &object);
                return self.answer(*answer);
            }
            Answer::Again(effect) => self.world.still_needed(effect).into_iter().collect(),
            Answer::Nothing => Vec::new(),
        };
        self.apply(effects);
    }

    fn pods(&mut self, event: Event<SlimPod>) {
        match event {
            Event::Init => (self.listing, self.unswept) = (true, self.world.nodes()),
            Event::InitApply(pod) => {
                let (node, uid) = (pod.node().to_owned(), pod.uid().to_owned());
                self.pod(pod, World::pod_applied);
                self.world.listed(&node, &uid);
            }
            Event::InitDone => (self.listing, self.unswept) = (false, self.world.nodes()),
            Event::Apply(pod) => self.pod(pod, World::pod_applied),
            Event::Delete(pod) => {
                let effects = self.world.pod_deleted(pod.node(), &pod.key(), pod.uid());
                self.apply(effects);
            }
        }
    }

    /// Prepares the pods of one node for a list, or compares them with it. All nodes are processed before the next
    /// event.
    fn sweep(&mut self, node: &str) {
        if self.listing {
            return self.world.relisted(node);
        }
        // A pod that is missing in a list is not yet deleted: ask for each by name.
        for (key, uid) in self.world.missing(node) {
            self.ask_if_gone(node.to_owned(), key, uid);
        }
    }

    /// Applies the tolerations of the node's object to a pod. After a conflict the watch delivers a newer pod.
    fn patch_tolerations(&mut self, key: ObjectKey, patch: String) {
        let requests = Requests::new(self.clients.own().clone());
        self.questions.push(reconcile_tolerations(requests, key, patch).boxed());
    }

    fn pod(&mut self, pod: SlimPod, enter: fn(&mut World, BoundPod) -> Vec<Effect>) {
        if let Some((key, patch)) = tolerations(&self.shared, &pod) {
            self.patch_tolerations(key, patch);
        }
        if !self.world.is_ours(pod.node()) {
            return;
        }
        if let Some(pod) = pod.into_bound() {
            let effects = enter(&mut self.world, pod);
            self.apply(effects);
        }
    }

    fn news(&mut self, News { key, watch, what }: News) {
        if self.watches.get(&key).is_none_or(|(current, _)| *current != watch) {
            return;
        }
        let effects = match what {
            What::Present(object) => self.world.object_present(object),
            What::Group(group) => self.world.group_present(&key, group),
            What::Absent => self.world.object_absent(&key),
            What::Failed => self.world.object_failed(&key),
            What::Refused => self.world.object_refused(&key),
        };
        self.apply(effects);
    }

    fn apply(&mut self, effects: Vec<Effect>) {
        self.effects.extend(effects);
    }
}
