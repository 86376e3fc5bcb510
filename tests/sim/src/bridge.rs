//! A bridge process: follows the API with the real `World`, serves connections with the real session and work queue,
//! and writes as the product's `reports` do. Loses its state when it restarts.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cloud_bridge::bridge::devices::Plan;
use cloud_bridge::bridge::slim::{BoundPod, SlimPod, config_object};
use cloud_bridge::bridge::work_queue::{Answer, Attempt, Outcome, WorkQueue};
use cloud_bridge::bridge::world::{Effect, Group, Round, Told, World};
use edge_protocol::SessionError;
use edge_protocol::bridge::{BridgeEvent, BridgeSession, BridgeSettings};
use edge_protocol::message::{DeviceRefusal, DeviceReport, Object, ObjectKey, Report};
use edge_protocol::state::{NodeState, StateError};
use edge_protocol::version::{RefuseReason, Wants};
use serde_json::Value;

use crate::api::{Api, Event, NODE};
use crate::line::Line;
use crate::rng::Rng;
use crate::trace::trace;
use crate::twins;
use crate::views::{self, News, Watched};

pub const WINDOW: usize = 2_000;
pub const CLUSTER: &str = "cluster";

/// A question to the API without an answer so far.
#[derive(Debug)]
enum Question {
    Seed { round: Round },
    IsGone { key: ObjectKey, uid: String },
}

/// Progress of the watch of pods.
#[derive(Debug)]
enum Watch {
    List { rest: VecDeque<Value>, at: usize },
    Live { at: usize },
}

/// A watch of one ConfigMap: the version that it delivered last.
#[derive(Debug, Default)]
struct Following {
    delivered: Option<Option<Value>>,
}

/// A report on its way into the API.
#[derive(Debug)]
struct Job {
    attempt: Attempt,
    /// The result of reading the pod.
    rv: Option<Option<u64>>,
    /// Whether the claim was checked after that, and was still this connection's.
    checked: bool,
}

/// Reports of devices on their way into the API.
#[derive(Debug)]
struct Batch {
    number: u64,
    rest: Vec<DeviceReport>,
    refused: Vec<DeviceRefusal>,
    /// The plan for the last report, from what was read.
    planned: Option<Plan>,
    checked: bool,
}

/// One connection.
#[derive(Debug)]
pub struct Conn {
    pub session: BridgeSession,
    work_queue: WorkQueue,
    jobs: Vec<Job>,
    devices: Option<Batch>,
    welcome: bool,
    claimed: bool,
    /// Told to disconnect; frames may still arrive.
    pub superseded: bool,
    /// Changes that the node has reported as committed.
    pub acked: Vec<u64>,
}

#[derive(Debug)]
pub struct Bridge {
    cluster: String,
    world: World,
    pub state: NodeState,
    added: bool,
    watch: Watch,
    following: BTreeMap<ObjectKey, Following>,
    groups: BTreeMap<ObjectKey, Watched>,
    /// Devices of the group.
    devices: Option<(ObjectKey, twins::Watched)>,
    questions: Vec<Question>,
    pub conns: BTreeMap<u64, Conn>,
    newest: u64,
    /// Its last list was incomplete: it cannot miss what it does not know.
    pub lied_to: bool,
    /// Its watches deliver nothing for now, though the API answers: objects that are read again are known at once.
    pub stalled: bool,
    /// Fencing number of the node according to the watch of Node objects.
    elsewhere: u64,
    pub resumed: Option<bool>,
    /// Highest of [`Bridge::bytes_waiting`] seen.
    pub most_in_flight: usize,
}

impl Bridge {
    /// Starts a new process. `name` must be new, too.
    pub fn start(name: String, cluster: &str, api: &Api, tombstones: usize) -> Self {
        Self {
            state: NodeState::new(format!("stream-{name}")).keep_tombstones(tombstones),
            cluster: cluster.to_owned(),
            world: World::new(api.scope.unwrap_or_default()),
            added: false,
            watch: list(api),
            following: BTreeMap::new(),
            groups: BTreeMap::new(),
            devices: None,
            questions: Vec::new(),
            conns: BTreeMap::new(),
            newest: 0,
            lied_to: false,
            stalled: false,
            elsewhere: 0,
            resumed: None,
            most_in_flight: 0,
        }
    }

    /// The watch of pods has expired and lists again. `lacking`: the list is incomplete by mistake.
    pub fn relist(&mut self, api: &Api, lacking: bool) {
        self.watch = list(api);
        self.world.relisted(NODE);
        self.lied_to = lacking;
        if let Watch::List { rest, .. } = &mut self.watch
            && lacking
        {
            rest.pop_back();
        }
    }

    /// Accepts a connection of the node, numbered by this bridge's clock `wall_ms`.
    pub fn accept(&mut self, line: u64, wall_ms: u64, now: Duration) {
        if !self.added {
            self.added = true;
            self.world.add_node(NODE);
        }
        self.newest = wall_ms.max(self.newest.max(self.elsewhere) + 1);
        let mut settings = BridgeSettings::new(NODE, self.cluster.clone(), self.newest);
        settings.window = WINDOW;
        for conn in self.conns.values_mut() {
            conn.superseded = true;
        }
        let session = BridgeSession::new(settings, &mut self.state, now);
        let conn = Conn {
            session,
            work_queue: WorkQueue::default(),
            jobs: Vec::new(),
            devices: None,
            welcome: false,
            claimed: false,
            superseded: false,
            acked: Vec::new(),
        };
        self.conns.insert(line, conn);
    }

    /// Carries out one step of reading the API. False if there was nothing to do.
    pub fn follow(&mut self, api: &Api, rng: &mut Rng) -> bool {
        if api.down {
            return false;
        }
        if self.elsewhere < api.session && rng.once_in(3) {
            self.follow_nodes(api.session);
            return true;
        }
        if !self.groups.is_empty() && rng.once_in(3) && self.follow_services(api, rng) {
            return true;
        }
        if rng.once_in(3) && self.follow_devices(api) {
            return true;
        }
        let moved = match rng.below(3) {
            0 => self.follow_pods(api) || self.follow_maps(api, rng) || self.answer(api, rng),
            1 => self.follow_maps(api, rng) || self.answer(api, rng) || self.follow_pods(api),
            _ => self.answer(api, rng) || self.follow_pods(api) || self.follow_maps(api, rng),
        };
        moved || self.follow_services(api, rng) || self.follow_devices(api)
    }

    /// Same as `Node::superseded`: another bridge has given the node this number.
    fn follow_nodes(&mut self, session: u64) {
        self.elsewhere = session;
        self.newest = self.newest.max(session);
        for conn in self.conns.values_mut().filter(|conn| conn.session.session() < session) {
            conn.superseded = true;
        }
        self.state.fence(session);
    }

    fn follow_pods(&mut self, api: &Api) -> bool {
        match &mut self.watch {
            Watch::List { rest, at } => match rest.pop_front() {
                Some(pod) => {
                    let pod = slim(pod);
                    let (node, uid) = (pod.node().to_owned(), pod.uid().to_owned());
                    self.applied(pod, World::pod_applied);
                    self.world.listed(&node, &uid);
                }
                None => {
                    self.watch = Watch::Live { at: *at };
                    for (key, uid) in self.world.missing(NODE) {
                        self.questions.push(Question::IsGone { key, uid });
                    }
                }
            },
            Watch::Live { .. } if self.stalled => return false,
            Watch::Live { at } => {
                let Some(event) = api.log.get(*at) else { return false };
                *at += 1;
                match event.clone() {
                    Event::Applied(pod) => self.applied(slim(pod), World::pod_applied),
                    Event::Deleted(pod) => {
                        let pod = slim(pod);
                        let effects = self.world.pod_deleted(pod.node(), &pod.key(), pod.uid());
                        self.apply(effects);
                    }
                }
            }
        }
        true
    }

    fn applied(&mut self, pod: SlimPod, enter: fn(&mut World, BoundPod) -> Vec<Effect>) {
        if self.world.is_ours(pod.node())
            && let Some(pod) = pod.into_bound()
        {
            let effects = enter(&mut self.world, pod);
            self.apply(effects);
        }
    }

    fn follow_maps(&mut self, api: &Api, rng: &mut Rng) -> bool {
        let shown = |key: &ObjectKey| if key.kind == "ConfigMap" { api.map(&key.name) } else { None };
        let heard = |f: &Following| !self.stalled || f.delivered.is_none();
        let stale = self.following.iter().filter(|(key, f)| heard(f) && f.delivered.as_ref() != Some(&shown(key)));
        let stale: Vec<ObjectKey> = stale.map(|(key, _)| key.clone()).collect();
        if stale.is_empty() {
            return false;
        }
        let key = &stale[rng.below(stale.len())];
        let now = shown(key);
        if let Some(following) = self.following.get_mut(key) {
            following.delivered = Some(now.clone());
        }
        let effects = match now.and_then(object) {
            Some(object) => self.world.object_present(object),
            None => self.world.object_absent(key),
        };
        self.apply(effects);
        true
    }

    /// Same as `informers::service_views`.
    fn follow_services(&mut self, api: &Api, rng: &mut Rng) -> bool {
        let stalled = self.stalled;
        let behind = |(_, watched): &(&ObjectKey, &Watched)| watched.is_behind(api, stalled);
        let behind: Vec<ObjectKey> = self.groups.iter().filter(behind).map(|(key, _)| key.clone()).collect();
        if behind.is_empty() {
            return false;
        }
        let key = &behind[rng.below(behind.len())];
        let Some(watched) = self.groups.get_mut(key) else { return false };
        if rng.once_in(30) {
            self.refuse(key);
            return true;
        }
        match watched.step(key, api, stalled, rng) {
            News::Nothing => return false,
            News::Heard => {}
            News::Group(group) => {
                let effects = self.world.group_present(key, group);
                self.apply(effects);
            }
        }
        true
    }

    /// Same as `informers::device_views`.
    fn follow_devices(&mut self, api: &Api) -> bool {
        let stalled = self.stalled;
        let Some((key, watched)) = self.devices.as_mut().filter(|(_, w)| w.is_behind(&api.devices, stalled)) else {
            return false;
        };
        let effects = self.world.group_present(key, watched.step(&api.devices));
        self.apply(effects);
        true
    }

    /// The API refuses to list Services, as a server does that has just started.
    pub fn refuse_services(&mut self) {
        let keys: Vec<ObjectKey> = self.groups.keys().cloned().collect();
        keys.iter().for_each(|key| self.refuse(key));
    }

    /// A refusal does not withdraw what was sent; if nothing was sent, nodes do not wait for it.
    fn refuse(&mut self, key: &ObjectKey) {
        let Some(watched) = self.groups.get_mut(key) else { return };
        let effects = match watched.fail() {
            true => self.world.object_failed(key),
            false => self.world.group_present(key, Group::new()),
        };
        self.apply(effects);
    }

    /// Answers one question, as `follow::ask` does.
    fn answer(&mut self, api: &Api, rng: &mut Rng) -> bool {
        if self.questions.is_empty() {
            return false;
        }
        let effects = match self.questions.swap_remove(rng.below(self.questions.len())) {
            Question::Seed { round } => {
                let pods = api.pods.keys().filter_map(|name| slim(api.pod(name)).into_bound());
                self.world.seed(NODE, round, pods.collect::<Vec<BoundPod>>(), Some(api.version()))
            }
            Question::IsGone { key, uid } if key.kind == "Pod" => {
                if api.pods.get(&key.name).is_some_and(|pod| pod.uid == uid) {
                    self.applied(slim(api.pod(&key.name)), World::pod_found);
                    return true;
                }
                let effects = self.world.pod_gone(NODE, &key, &uid);
                self.apply(effects);
                if api.pods.contains_key(&key.name) {
                    self.applied(slim(api.pod(&key.name)), World::pod_found);
                }
                return true;
            }
            Question::IsGone { key, uid } if views::is_view(&key) => self.world.unlisted(NODE, &key, &uid),
            Question::IsGone { key, uid } if twins::is_of_devices(&key) => match api.devices.has(&key.name, &uid) {
                true => self.world.unlisted(NODE, &key, &uid),
                false => vec![Effect::Remove { node: NODE.to_owned(), key, uid }],
            },
            // The API server lets a node read only what its pods name.
            Question::IsGone { key, uid } if !api.is_named(&key.name) => {
                if self.world.uses(NODE, &key) {
                    self.questions.push(Question::IsGone { key, uid });
                    return false;
                }
                vec![Effect::Withdraw { node: NODE.to_owned(), key, uid }]
            }
            Question::IsGone { key, uid } => {
                let gone = api.maps.get(&key.name).is_none_or(|map| map.uid != uid);
                if gone { vec![Effect::Remove { node: NODE.to_owned(), key, uid }] } else { Vec::new() }
            }
        };
        self.apply(effects);
        true
    }

    fn apply(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            trace(|| match &effect {
                Effect::Set { object, .. } => {
                    let generation = whole(object).body["metadata"]["generation"].clone();
                    let (stream, digest) = (self.state.stream(), &object.digest);
                    format!("bridge {stream}: set {} {}, generation {generation}", digest.key.name, digest.uid)
                }
                other => format!("bridge {}: {other:?}", self.state.stream()),
            });
            match effect {
                Effect::Set { object, .. } => match self.state.set(whole(&object)) {
                    Ok(_) | Err(StateError::Deleted { .. }) => {}
                    Err(error) => panic!("{error}"),
                },
                Effect::Remove { key, uid, .. } => drop(self.state.remove(&key, &uid)),
                Effect::Withdraw { key, uid, .. } => drop(self.state.withdraw(&key, &uid)),
                Effect::Listed { session, .. } => self.state.listed(session),
                Effect::Ask { key, uid, .. } => self.questions.push(Question::IsGone { key, uid }),
                Effect::Watch { key, .. } if key.kind == twins::GROUP => self.devices = Some((key, Default::default())),
                Effect::Unwatch { key } if key.kind == twins::GROUP => self.devices = None,
                Effect::Watch { key, .. } if key.kind == views::GROUP => {
                    drop(self.groups.insert(key, Watched::default()))
                }
                Effect::Unwatch { key } if key.kind == views::GROUP => drop(self.groups.remove(&key)),
                Effect::Watch { key, .. } => drop(self.following.insert(key, Following::default())),
                Effect::Unwatch { key } => drop(self.following.remove(&key)),
                // There is one node: everything is watched in its name.
                Effect::Admit { .. } | Effect::ReadJobs | Effect::RestoreReady { .. } | Effect::FinishMirror { .. } => {
                }
            }
        }
    }

    /// Puts one frame on the line, if the line has room.
    pub fn send(&mut self, number: u64, line: &mut Line, now: Duration) -> bool {
        let Some(conn) = self.conns.get_mut(&number) else { return false };
        if !line.takes_down() {
            return false;
        }
        let Some(frame) = conn.session.poll_transmit(&self.state, now) else { return false };
        self.most_in_flight = self.most_in_flight.max(conn.session.in_flight());
        line.send_down(frame);
        true
    }

    /// Takes one frame from the line. An error ends the connection.
    pub fn receive(&mut self, number: u64, frame: &str, now: Duration) -> Result<(), SessionError> {
        let Some(conn) = self.conns.get_mut(&number) else { return Ok(()) };
        let fenced = self.state.session() != conn.session.session();
        let result = conn.session.handle(&mut self.state, frame, now);
        if fenced {
            let refused = matches!(result, Err(SessionError::Refused { reason: RefuseReason::Superseded, .. }));
            assert!(refused, "a late frame was taken: {result:?}");
            assert_eq!(conn.session.poll_event(), None, "a late frame had an effect");
            return result;
        }
        let mut follow = Vec::new();
        while let Some(event) = conn.session.poll_event() {
            match event {
                BridgeEvent::Connected { hello, resumed } => {
                    self.resumed = Some(resumed);
                    assert_eq!(hello.node, NODE);
                    conn.welcome = true;
                    let effects = self.world.connected(NODE);
                    assert!(effects.is_empty(), "nobody calls pods unready here");
                    follow.extend(self.world.wants(NODE, Wants::of(&hello), None));
                    if !resumed {
                        self.world.refresh(NODE, conn.session.session());
                        self.questions.push(Question::Seed { round: self.world.round() });
                    }
                }
                BridgeEvent::Acked { seq } => conn.acked.push(seq),
                BridgeEvent::Report { id, report } => conn.work_queue.push(id, report),
                BridgeEvent::Unlisted(objects) => {
                    for object in objects {
                        self.questions.push(Question::IsGone { key: object.key, uid: object.uid });
                    }
                }
                BridgeEvent::Devices { batch, devices } => {
                    let (number, rest) = (batch, devices);
                    conn.devices = Some(Batch { number, rest, refused: Vec::new(), planned: None, checked: false });
                }
                BridgeEvent::Nacked { .. }
                | BridgeEvent::Interests(_)
                | BridgeEvent::TokenRequest { .. }
                | BridgeEvent::Renew(_)
                | BridgeEvent::Message { .. }
                | BridgeEvent::Answer { .. }
                | BridgeEvent::Request { .. }
                | BridgeEvent::ApiOpened { .. }
                | BridgeEvent::Stream(_) => {}
            }
        }
        self.apply(follow);
        result
    }

    /// One step of one connection's writes to the API. False if there is nothing to do.
    pub fn write(&mut self, number: u64, api: &mut Api, rng: &mut Rng) -> bool {
        let Some(conn) = self.conns.get_mut(&number) else { return false };
        if api.down || conn.superseded {
            return false;
        }
        if !conn.claimed {
            if !conn.welcome {
                return false;
            }
            conn.superseded = api.session > conn.session.session();
            conn.claimed = !conn.superseded;
            api.session = api.session.max(conn.session.session());
            return true;
        }
        if conn.devices.is_some() && (conn.jobs.is_empty() || rng.once_in(2)) {
            return write_devices(conn, api, rng);
        }
        while let Some(attempt) = conn.work_queue.begin() {
            conn.jobs.push(Job { attempt, rv: None, checked: false });
        }
        if conn.jobs.is_empty() {
            return conn.devices.is_some() && write_devices(conn, api, rng);
        }
        let at = rng.below(conn.jobs.len());
        let job = &mut conn.jobs[at];
        let outcome = match &job.attempt.report {
            _ if rng.once_in(12) => Outcome::Retry("the API is busy".to_owned()),
            Report::PodStatus { uid, status, .. } => match job.rv {
                None => {
                    job.rv = Some(api.rv_of(uid));
                    return true;
                }
                Some(None) => Outcome::Refused("no such pod".to_owned()),
                Some(Some(_)) if !job.checked => {
                    job.checked = true;
                    conn.superseded = api.session > conn.session.session();
                    return true;
                }
                Some(Some(rv)) => {
                    let version = status["simVersion"].as_u64().unwrap_or_default();
                    match api.write_status(uid, version, rv) {
                        true => Outcome::Written,
                        false => Outcome::Conflict("conflict".to_owned()),
                    }
                }
            },
            Report::PodGone { uid, .. } => {
                api.gone(uid);
                Outcome::Written
            }
            _ => Outcome::Written,
        };
        let job = conn.jobs.swap_remove(at);
        for answer in conn.work_queue.finish(job.attempt, outcome) {
            match answer {
                Answer::Reported(id) => conn.session.reported(id),
                Answer::Refused(id, reason) => conn.session.refuse_report(id, reason),
            }
        }
        true
    }

    /// Whether the bridge knows everything that the API has.
    pub fn is_idle(&self, api: &Api) -> bool {
        let shown = |key: &ObjectKey| if key.kind == "ConfigMap" { api.map(&key.name) } else { None };
        self.elsewhere >= api.session
            && matches!(self.watch, Watch::Live { at } if at == api.log.len())
            && self.questions.is_empty()
            && self.groups.values().all(|watched| watched.is_idle(api))
            && self.devices.as_ref().is_none_or(|(_, watched)| watched.is_idle(&api.devices))
            && self.following.iter().all(|(key, f)| f.delivered.as_ref() == Some(&shown(key)))
    }
}

/// One step of writing reports of devices.
fn write_devices(conn: &mut Conn, api: &mut Api, rng: &mut Rng) -> bool {
    let session = conn.session.session();
    let Some(batch) = &mut conn.devices else { return false };
    let Some(report) = batch.rest.last() else {
        let Some(Batch { number, refused, .. }) = conn.devices.take() else { return false };
        conn.session.devices_written(number, refused);
        return true;
    };
    match batch.planned.take() {
        _ if rng.once_in(12) => {}
        None => batch.planned = Some(api.devices.plan(report, session, &mut batch.refused)),
        Some(plan) if !batch.checked => {
            batch.checked = true;
            conn.superseded = api.session > session;
            batch.planned = Some(plan);
            return true;
        }
        Some(plan) => {
            if api.devices.write(report, plan) {
                batch.rest.pop();
            } else {
                // The status of an earlier device of that name blocks the write until it is collected.
                api.devices.collect();
            }
        }
    }
    batch.checked = false;
    true
}

fn list(api: &Api) -> Watch {
    let rest = api.pods.keys().map(|name| api.pod(name)).collect();
    Watch::List { rest, at: api.log.len() }
}

/// Restores an object of which only the text is kept.
fn whole(told: &Told) -> Object {
    Object { digest: told.digest.clone(), body: serde_json::from_str(told.text().text()).expect("JSON") }
}

fn slim(pod: Value) -> SlimPod {
    serde_json::from_value(pod).expect("the model makes pods that read")
}

/// A ConfigMap as nodes receive it.
pub fn object(map: Value) -> Option<Object> {
    config_object("ConfigMap", serde_json::from_value(map).expect("the model makes ConfigMaps that read"))
}

/// The objects that a node with these pods should hold. `services`: whether it asks for Services.
pub fn wanted(api: &Api, services: bool) -> Vec<Object> {
    let pods = api.pods.iter().filter(|(_, pod)| !pod.poison);
    let pods = pods.filter_map(|(name, _)| Some(whole(&slim(api.pod(name)).into_bound()?.object)));
    let maps = api.maps.keys().filter(|name| api.is_named(name)).filter_map(|name| object(api.map(name)?));
    let scope = api.scope.filter(|_| services && !api.pods.is_empty());
    let views = scope.into_iter().flat_map(|scope| views::wanted(api, scope));
    pods.chain(maps).chain(views).collect()
}
