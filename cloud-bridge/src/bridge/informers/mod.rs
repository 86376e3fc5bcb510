//! Follows the API: one watch of all pods for all nodes, and one small watch per ConfigMap or Secret while a pod of a
//! connected node names it. Feeds `world` and executes its effects.
//!
//! One pod watch costs the API server one connection for any number of nodes. This process has to parse events of
//! foreign pods, but keeps nothing of them. ConfigMaps and Secrets are watched one by one, as kubelets do: nodes have
//! no right to more, and a namespace may hold thousands of others.
//!
//! | file | owns |
//! |---|---|
//! | `commands`, `command` | what connections ask for |
//! | `pods` | the watch of all pods |
//! | `effects` | the effects of an event, and the start of each watch |
//! | `news` | changes on their way from a watch |
//! | `object`, `claims`, `labels`, `service_links`, `service_views`, `policy_views`, `site_view`, `views` | one watch each |
//! | `service_watch`, `peers`, `kept_policies` | what several watches share |
//! | `attached` | the attachment of a volume, on its way to a node |
//! | `ask`, `gone`, `admit`, `look_up` | questions to the API |
//! | `answers`, `answer` | what follows from their answers |

mod admit;
mod answer;
mod answers;
mod ask;
mod attached;
mod claims;
pub(super) mod command;
mod commands;
mod effects;
mod gone;
mod kept_policies;
mod labels;
mod look_up;
mod news;
mod object;
mod peers;
mod pods;
mod policy_views;
mod service_links;
mod service_views;
mod service_watch;
mod site_view;
mod views;

use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Instant;

use edge_protocol::message::ObjectKey;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::attachments::Attachments;
use super::autonomy::Autonomy;
use super::clients::Clients;
use super::devices::state::DeviceState;
use super::jobs::known::Jobs;
use super::nodes::Nodes;
use super::rules::state::RuleState;
use super::settings::{ApiAddress, PodsSeen};
use super::shared::Shared;
use super::sites::Sites;
use super::slim::SlimPod;
use super::world::{Effect, Round, World};
use admit::Admissions;
use answer::Answer;
use apimachinery::pace::Pace;
use apimachinery::panics;
use apimachinery::well_known::PAGE;
use command::Command;
use look_up::LookUps;
use news::{News, What};
use peers::Peers;
use service_watch::ServiceWatches;

/// Maximum number of queued changes of single objects; beyond it, watches wait.
const NEWS: usize = 256;

type Questions = FuturesUnordered<BoxFuture<'static, Answer>>;

/// Follows the API until the bridge ends.
pub(super) fn start(shared: &Shared, commands: mpsc::UnboundedReceiver<Command>) {
    let (sender, news) = mpsc::channel(NEWS);
    let (clients, settings) = (shared.clients.clone(), &shared.settings);
    let mut world = World::new(settings.service_scope);
    world.withhold_lists(settings.lists_withheld);
    let informers = Informers {
        nodes: Arc::clone(&shared.nodes),
        autonomy: Arc::clone(&shared.autonomy),
        devices: Arc::clone(&shared.devices),
        rules: Arc::clone(&shared.rules),
        jobs: Arc::downgrade(&shared.jobs),
        api: settings.api.clone(),
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
        sites: shared.sites.subscribe(),
        attachments: Arc::clone(&shared.attachments),
        peers: Peers::new(clients.own().clone()),
        clients,
    };
    tokio::spawn(run(informers, settings.pods_seen.clone(), news, commands));
}

async fn run(
    mut informers: Informers,
    pods_seen: Option<Arc<PodsSeen>>,
    mut news: mpsc::Receiver<News>,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
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
    nodes: Arc<Nodes>,
    autonomy: Arc<Autonomy>,
    devices: Arc<DeviceState>,
    rules: Arc<RuleState>,
    /// Not kept alive: they hold a sender of commands, and the informers end with the last sender.
    jobs: Weak<Jobs>,
    /// Address of the API for pods, if it is not that of its Service.
    api: Option<ApiAddress>,
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
    job_readings: VecDeque<(u64, Round)>,
    sites: watch::Receiver<Sites>,
    attachments: Arc<Attachments>,
}

impl Informers {
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
