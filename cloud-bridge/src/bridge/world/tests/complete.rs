//! Random courses of events with a small model of the API and of the tasks that carry out effects: once everything is
//! answered, each connected node has its complete list.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::bridge::told::kinds::Kind;

const NODES: [&str; 3] = ["a", "b", "c"];
const PODS: [&str; 3] = ["p", "q", "r"];
const SITES: [Option<&str>; 3] = [None, Some("hall"), Some("yard")];

/// An answer that the world waits for.
#[derive(PartialEq)]
enum Due {
    Watch(ObjectKey),
    Admission(String, ObjectKey),
    LookUp(String, ObjectKey, String),
    Jobs(Round),
    /// The list of pods of this round for these nodes, as it was at this version.
    Seed(Round, BTreeSet<String>, Vec<BoundPod>, u64),
    /// The next event of the watch of pods.
    Event,
}

#[derive(Default)]
struct Model {
    world: World,
    due: Vec<Due>,
    watches: BTreeSet<ObjectKey>,
    /// Pods in the API by name, and the version of the newest.
    pods: BTreeMap<&'static str, BoundPod>,
    version: u64,
    /// Events that the watch of pods has not delivered yet; true for deletions.
    events: VecDeque<(BoundPod, bool)>,
    unseeded: BTreeSet<String>,
    sites: BTreeMap<&'static str, &'static str>,
    session: u64,
    /// The newest session of each node, and whether its list is complete.
    sessions: BTreeMap<&'static str, (u64, bool)>,
    connected: BTreeSet<&'static str>,
}

impl Model {
    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Watch { key, .. } => {
                    self.unwatch(&key);
                    self.watches.insert(key.clone());
                    self.due.push(Due::Watch(key));
                }
                Effect::Unwatch { key } => self.unwatch(&key),
                Effect::Admit { key, node } => {
                    let question = Due::Admission(node, key);
                    if !self.due.contains(&question) {
                        self.due.push(question);
                    }
                }
                Effect::Ask { node, key, uid } => self.due.push(Due::LookUp(node, key, uid)),
                Effect::ReadJobs => self.due.push(Due::Jobs(self.world.present_round())),
                Effect::Listed { node, session } => {
                    if let Some(newest) = self.sessions.get_mut(node.as_str()).filter(|newest| newest.0 == session) {
                        newest.1 = true;
                    }
                }
                _ => {}
            }
        }
    }

    fn unwatch(&mut self, key: &ObjectKey) {
        self.watches.remove(key);
        self.due.retain(|due| !matches!(due, Due::Watch(of) if of == key));
    }

    /// The node connects, and may resume if its list is complete. The order of the calls is that of the informers.
    fn hello(&mut self, node: &'static str, bits: u8) {
        let bit = |at: u8| (bits >> at) & 1 == 1;
        let resumed = bit(0) && self.sessions.get(node).is_some_and(|(_, complete)| *complete);
        self.session += 1;
        self.sessions.insert(node, (self.session, resumed));
        self.connected.insert(node);
        self.world.add_node(node);
        let wants = Wants {
            services: bit(1),
            routes: bit(1) && bit(2),
            policies: bit(3),
            devices: bit(4),
            rules: bit(5),
            api: false,
            csi: bit(5),
        };
        let mut effects = self.world.takes_orders(node, bit(6));
        effects.extend(self.world.wants(node, wants, self.sites.get(node).copied()));
        effects.extend(self.interested(node, bits));
        self.carry_out(effects);
        if !resumed {
            self.world.refresh(node, self.session);
            self.unseeded.insert(node.to_owned());
            self.seed();
        }
    }

    fn interested(&mut self, node: &str, bits: u8) -> Vec<Effect> {
        self.world.interested(node, &vec!["shop".to_owned(); usize::from(bits >> 7)], Duration::ZERO)
    }

    /// Requests the pods of new nodes, unless a list is under way.
    fn seed(&mut self) {
        if !self.unseeded.is_empty() && !self.due.iter().any(|due| matches!(due, Due::Seed(..))) {
            let (round, nodes) = (self.world.round(), std::mem::take(&mut self.unseeded));
            self.due.push(Due::Seed(round, nodes, self.pods.values().cloned().collect(), self.version));
        }
    }

    /// A pod is created, or changed if it exists. The lowest bits say which objects it names.
    fn pod_written(&mut self, name: &'static str, bits: u8) {
        self.version += 1;
        let maps = ["k", "l", "m"].into_iter().enumerate().filter(|(at, _)| (bits >> at) & 1 == 1);
        let maps: Vec<&str> = maps.map(|(_, map)| map).collect();
        let old = self.pods.get(name).map(|old| (old.node.clone(), old.uid().to_owned()));
        let new = || (NODES[usize::from(bits >> 3) % NODES.len()].to_owned(), format!("{name}{}", self.version));
        let (node, uid) = old.unwrap_or_else(new);
        let object = Told::new(object("Pod", name, &uid));
        let mut written = BoundPod { object, version: Some(self.version), ..pod(&node, name, &maps) };
        // A claim, and the driver of an inline volume.
        let volumes = [("l", key("PersistentVolumeClaim", "c")), ("m", Kind::CsiDriver.key("", "inline"))];
        written.refs.extend(volumes.into_iter().filter(|(map, _)| maps.contains(map)).map(|(_, volume)| volume));
        self.pods.insert(name, written.clone());
        self.tell(written, false);
    }

    fn tell(&mut self, pod: BoundPod, deleted: bool) {
        self.events.push_back((pod, deleted));
        self.due.push(Due::Event);
    }

    /// The watch of pods was interrupted: events are lost, and a new list is read.
    fn relisted(&mut self) {
        self.events.clear();
        NODES.into_iter().for_each(|node| self.world.relisted(node));
        for pod in self.pods.clone().into_values() {
            let (node, uid) = (pod.node.clone(), pod.uid().to_owned());
            let effects = self.world.pod_applied(pod);
            self.carry_out(effects);
            self.world.listed(&node, &uid);
        }
        for node in NODES {
            let missing = self.world.missing(node);
            self.due.extend(missing.into_iter().map(|(key, uid)| Due::LookUp(node.to_owned(), key, uid)));
        }
    }

    fn event(&mut self, kind: u8, n: u8, m: u8) {
        let (node, name) = (NODES[usize::from(n) % NODES.len()], PODS[usize::from(n) % PODS.len()]);
        let effects = match kind {
            0 | 1 => return self.hello(node, m),
            2 | 3 => return self.pod_written(name, m),
            4 => return self.pods.remove(name).into_iter().for_each(|pod| self.tell(pod, true)),
            5 => return self.relisted(),
            6 => {
                let site = SITES[usize::from(m) % SITES.len()];
                self.sites.remove(node);
                self.sites.extend(site.map(|site| (node, site)));
                self.world.located(node, site)
            }
            7 => self.world.all_located(),
            8 => {
                self.connected.remove(node);
                self.sessions.remove(node);
                self.world.drop_node(node)
            }
            9 => self.interested(node, m),
            10 | 11 => {
                let key = self.watches.iter().nth(usize::from(n) % self.watches.len().max(1)).cloned();
                key.map(|key| self.watch_tells(&key, m % 4)).unwrap_or_default()
            }
            _ => return self.answer(usize::from(n), m % 4),
        };
        self.carry_out(effects);
    }

    /// Gives one of the answers that are due. `how`: 0 fails, 1 is refused.
    fn answer(&mut self, which: usize, how: u8) {
        if self.due.is_empty() {
            return;
        }
        let due = self.due.swap_remove(which % self.due.len());
        let (effects, again) = match &due {
            Due::Watch(key) => (self.watch_tells(key, how), how < 2 && self.watches.contains(key)),
            Due::Admission(node, key) if how < 2 => self.world.not_admitted(node, key),
            Due::Admission(node, key) => (self.world.admitted(node, key), false),
            Due::LookUp(node, key, uid) => (self.look_up(node, key, uid), false),
            Due::Jobs(round) => (self.world.orders(Some(*round), Vec::new()), false),
            Due::Seed(round, nodes, pods, at) => {
                self.seed();
                let mut effects = Vec::new();
                for node in nodes {
                    let own = pods.iter().filter(|pod| pod.node == *node).cloned().collect();
                    effects.extend(self.world.seed(node, *round, own, Some(*at)));
                }
                (effects, false)
            }
            Due::Event => match self.events.pop_front() {
                Some((pod, true)) => (self.world.pod_deleted(&pod.node, &pod.object.digest.key, pod.uid()), false),
                Some((pod, false)) => (self.world.pod_applied(pod), false),
                None => (Vec::new(), false),
            },
        };
        // First the question that is repeated: the effects may replace it.
        self.due.extend(again.then_some(due));
        self.carry_out(effects);
    }

    fn watch_tells(&mut self, key: &ObjectKey, how: u8) -> Vec<Effect> {
        let map = [Kind::ConfigMap, Kind::Secret, Kind::CsiDriver, Kind::Claim].iter().any(|kind| kind.is(key));
        let site = Kind::SiteView.is(key);
        match how {
            0 => self.world.object_failed(key),
            1 => self.world.object_refused(key),
            2 if map => self.world.object_absent(key),
            _ if map || site => {
                let digest = ObjectDigest { key: key.clone(), uid: "u".into(), digest: "d".into() };
                let secret = json!({"namespace": "vault", "name": "s"});
                let csi = json!({"driver": "d", "nodeStageSecretRef": secret});
                let bound = json!({"namespace": key.namespace, "name": key.name});
                // Only the body of a claim is read.
                let body = json!({"volume": {"spec": {"claimRef": bound, "csi": csi}}});
                self.world.object_present(Object { digest, body })
            }
            _ => self.world.group_present(key, views(&[("web", "u1")][..usize::from(how - 2)])),
        }
    }

    fn look_up(&mut self, node: &str, key: &ObjectKey, uid: &str) -> Vec<Effect> {
        let found = self.pods.get(key.name.as_str()).cloned();
        let gone = found.as_ref().is_none_or(|found| found.uid() != uid);
        let mut effects = if gone { self.world.pod_gone(node, key, uid) } else { Vec::new() };
        effects.extend(found.into_iter().flat_map(|found| self.world.pod_found(found)));
        effects
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_connected_node_is_listed_once_all_is_answered(
        scope in 0_usize..3,
        events in prop::collection::vec((0_u8..24, any::<u8>(), any::<u8>()), 1..80),
        order in prop::collection::vec(any::<u8>(), 16),
    ) {
        let scope = [ServiceScope::Namespaces, ServiceScope::All, ServiceScope::Site][scope];
        let mut model = Model { world: World::new(scope), ..Model::default() };
        for (kind, n, m) in events {
            model.event(kind, n, m);
        }
        let effects = model.world.all_located();
        model.carry_out(effects);
        for pick in order.iter().cycle().take(2_000) {
            model.answer(usize::from(*pick), 2 + pick % 2);
        }
        prop_assert!(model.due.is_empty(), "answers bring questions without end");
        let waiting: Vec<_> = model.connected.iter().filter(|node| !model.sessions[*node].1).collect();
        prop_assert!(waiting.is_empty(), "{:?} wait for ever: {:?}", waiting, model.world);
    }
}
