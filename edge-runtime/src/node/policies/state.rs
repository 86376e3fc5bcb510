//! NetworkPolicies: the pods of this node that they select, and when to update the kernel. The decisions and the rules
//! are in [`crate::net::policy`].
//!
//! The kernel's tables are replaced as a whole, in one transaction, and stay when the daemon ends. While there is a
//! policy, a pod is connected only after the kernel has its rules: before its first packet, and also because it may be
//! a peer of another pod.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use edge_protocol::message::ObjectKey;

use super::done::Done;
use crate::launch::Launch;
use crate::net::hardware_address;
use crate::net::policy::view::{POLICY_PEERS, POLICY_VIEW};
use crate::net::policy::world::Name;
use crate::net::policy::{Link, LocalPod, Peers, Policy, Tables, World, apply, tables};
use crate::net::services::view::protocol;
use crate::node::context::Context;
use crate::node::pods::{Entry, Pods};
use crate::node::sources::News;
use crate::pod::clock::Mono;
use crate::pod::spec::{host_network, with_kinds};
use crate::store::{Store, StoreError};
use crate::sys::vec_map::VecMap;

/// Pause between two changes of the kernel's rules; changes meanwhile are combined.
const PAUSE: Duration = Duration::from_millis(50);
/// Pause after a change, as a multiple of its time: a great many rules take this share of the board at most...
const SHARE: u32 = 10;
/// ...unless a pod waits for the next change to start. Without pause if the OCI runtime has nothing else to start.
const SHARE_WHILE_WAITED_FOR: u32 = 1;
/// Between two attempts when the kernel, or `nft`, refuses: doubled each time, up to the second one.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_AT_MOST: Duration = Duration::from_secs(60);
/// Number of attempts to delete tables that may not exist: a node without policies may lack `nft`.
const CLEAR_AT_MOST: u32 = 5;
/// Maximum number of policies that are reported as not understood; further ones are only logged.
const TOLD_AT_MOST: usize = 100;

/// Pods that wait no longer, and why that is for nothing, if so.
pub(super) type Answered = (BTreeSet<String>, Result<(), String>);

pub(in crate::node) struct Policies {
    enabled: bool,
    policies: BTreeMap<Name, Policy>,
    others: BTreeMap<Name, Peers>,
    /// Pods of this node by uid; empty without a policy.
    pods: VecMap<String, LocalPod>,
    /// Pods that are being connected, and their addresses.
    pub(super) coming: VecMap<String, Vec<IpAddr>>,
    /// Pods of these that wait for an answer.
    waiting: BTreeSet<String>,
    dirty: bool,
    /// What the kernel holds, for all that is known.
    held: Held,
    /// The state after the running `nft`, when that began, and the pods that wait for it.
    running: Option<(Held, Mono, BTreeSet<String>)>,
    /// When the next change may begin: the first while a pod waits for it, else the second.
    not_before: Option<(Mono, Mono)>,
    failures: u32,
    trouble: String,
    /// Logged problems of policies that are not understood.
    told: BTreeMap<Name, String>,
    neighbours_told: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Held {
    /// This daemon has just started.
    Unknown,
    /// Another state than the desired one.
    Other,
    Nothing,
    Tables(String),
}

impl Policies {
    /// Reads the views of the store.
    ///
    /// # Errors
    /// SQLite fails.
    pub(in crate::node) fn open(enabled: bool, store: &Store) -> Result<Self, StoreError> {
        let mut policies = Self {
            enabled,
            policies: BTreeMap::new(),
            others: BTreeMap::new(),
            pods: VecMap::new(),
            coming: VecMap::new(),
            waiting: BTreeSet::new(),
            dirty: true,
            held: Held::Unknown,
            running: None,
            not_before: None,
            failures: 0,
            trouble: String::new(),
            told: BTreeMap::new(),
            neighbours_told: false,
        };
        if enabled {
            for key in store.held()?.into_iter().map(|digest| digest.key).filter(is_view) {
                let body = store.object(&key.kind, &key.namespace, &key.name)?;
                policies.put(&key, body);
            }
        }
        Ok(policies)
    }

    /// An object of the bridge has come, changed or gone; false if it is not about policies.
    pub(in crate::node) fn take(&mut self, cx: &Context, key: &ObjectKey) -> bool {
        if !is_view(key) {
            return false;
        }
        if self.enabled {
            match cx.store.object(&key.kind, &key.namespace, &key.name) {
                Ok(body) => self.put(key, body),
                // Rules stay as they are, and the policy with them.
                Err(error) => log::error!("{} {}/{}: {error}", key.kind, key.namespace, key.name),
            }
        }
        true
    }

    fn put(&mut self, key: &ObjectKey, body: Option<serde_json::Value>) {
        let name = (key.namespace.clone(), key.name.clone());
        self.dirty = true;
        if key.kind == POLICY_VIEW {
            match body {
                Some(body) => drop(self.policies.insert(name, Policy::read(&body))),
                None => drop(self.policies.remove(&name)),
            }
            return;
        }
        match body.map(|body| Peers::read(&body)) {
            Some(Ok(peers)) => drop(self.others.insert(name, peers)),
            // Then none of these peers is let in.
            Some(Err(error)) => {
                log::error!("peers of policies {}/{} are left out: {error}", name.0, name.1);
                self.others.remove(&name);
            }
            None => drop(self.others.remove(&name)),
        }
    }

    /// After a pod's turn: whether it is another one for policies now.
    pub(in crate::node) fn look_at_pod(&mut self, cx: &Context, launch: &Launch, uid: &str) {
        if !self.policies.is_empty() && self.pods.get(uid) != self.local_pod(cx, launch, uid).as_ref() {
            self.dirty = true;
        }
    }

    /// `None` for a pod without its own addresses.
    fn local_pod(&self, cx: &Context, launch: &Launch, uid: &str) -> Option<LocalPod> {
        let entry: &Entry = cx.pods.get(uid)?;
        let (pod, record) = (&entry.pod, &entry.record);
        let ips = if entry.sandbox_ready() { &record.ips } else { self.coming.get(uid)? };
        if host_network(pod) || ips.is_empty() {
            return None;
        }
        let containers =
            pod.spec.iter().flat_map(with_kinds).flat_map(|(container, _)| container.ports.iter().flatten());
        let ports = containers.filter_map(|port| {
            let number = u16::try_from(port.container_port).ok()?;
            Some((port.name.clone()?, protocol(port.protocol.as_deref().unwrap_or_default())?, number))
        });
        let teardown = &launch.sandboxes.teardown;
        Some(LocalPod {
            namespace: record.namespace.clone(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            ips: ips.clone(),
            ports: ports.collect(),
            link: (!teardown.is_attached(uid)).then(|| Link {
                name: teardown.network.link_of(uid),
                mac: ips.first().copied().map(hardware_address).unwrap_or_default(),
            }),
        })
    }

    /// Whether the pod, which is about to be connected with these addresses, must wait for the kernel. The answer is
    /// [`Answer::Policies`].
    pub(in crate::node) fn holds_back(&mut self, uid: &str, ips: &[IpAddr]) -> bool {
        if self.policies.is_empty() || ips.is_empty() {
            return false;
        }
        self.coming.insert(uid.to_owned(), ips.to_vec());
        self.waiting.insert(uid.to_owned());
        self.dirty = true;
        true
    }

    /// A chain whose existence shows that the kernel holds the desired state; `None` if tables should not exist, or
    /// during a change.
    pub(in crate::node) fn mark(&self) -> Option<&str> {
        match &self.held {
            Held::Tables(mark) if self.running.is_none() => Some(mark),
            _ => None,
        }
    }

    /// Another program has deleted the tables.
    pub(in crate::node) fn lost(&mut self) {
        (self.held, self.dirty) = (Held::Other, true);
    }

    /// Updates the kernel if it is time. Called with each round of the loop. Returns the pods that wait no longer, and
    /// the error if the update failed.
    pub(super) fn step(&mut self, cx: &mut Context, launch: &Launch) -> Result<Answered, StoreError> {
        let nobody = Ok((BTreeSet::new(), Ok(())));
        if self.running.is_some() || !cx.resumed {
            return nobody;
        }
        let now = cx.mono();
        if !self.dirty {
            return nobody;
        }
        if !self.hurries(&cx.pods, cx.config.runtime.parallel()) && self.due().is_some_and(|at| now < at) {
            if self.failures == 0 {
                return nobody;
            }
            // A pod retries with its own back-off, so that it does not delay the end of a deleted pod.
            return Ok((std::mem::take(&mut self.waiting), Err(self.trouble.clone())));
        }
        self.dirty = false;
        let wanted = self.wanted(cx, launch);
        let denied = wanted.as_ref().map(|tables| tables.denied.clone()).unwrap_or_default();
        self.tell_denied(cx, denied)?;
        let held = wanted.as_ref().map_or(Held::Nothing, |tables| Held::Tables(tables.mark.clone()));
        if held == self.held {
            self.failures = 0;
            return Ok((std::mem::take(&mut self.waiting), Ok(())));
        }
        self.running = Some((held, now, std::mem::take(&mut self.waiting)));
        let network = &launch.sandboxes.teardown.network;
        let (nft, settings) = (network.nft().to_owned(), network.settings().clone());
        match wanted {
            None => cx.background(async move {
                let done = apply::clear(&nft, &settings.bridge).await;
                News::PoliciesApplied(Done::Cleared(done.map_err(|error| error.to_string())))
            }),
            Some(tables) if self.held == Held::Unknown => cx.background(async move {
                let found = apply::has(&settings.bridge, &settings.subnets, &tables.mark);
                News::PoliciesApplied(Done::Looked(found))
            }),
            Some(tables) => {
                let together = !self.neighbours_told;
                cx.background(async move {
                    let done = apply::replace(nft, tables, together).await;
                    let around = done.map(|around| around.map(|error| error.to_string()));
                    News::PoliciesApplied(Done::Replaced(around.map_err(|error| error.to_string())))
                });
            }
        }
        nobody
    }

    fn wanted(&mut self, cx: &Context, launch: &Launch) -> Option<Tables> {
        // The record of a pod that was being connected has its result by now.
        self.coming.retain(|uid, _| cx.pods.get(uid).is_some_and(|entry| !entry.sandbox_ready()));
        if self.policies.is_empty() {
            self.pods.clear();
            self.told.clear();
            return None;
        }
        let pods = cx.pods.iter().filter_map(|(uid, _)| Some((uid.clone(), self.local_pod(cx, launch, uid)?)));
        self.pods = pods.collect();
        let (settings, pods) =
            (launch.sandboxes.teardown.network.settings(), self.pods.values().cloned().collect::<Vec<_>>());
        tables(&World {
            bridge: &settings.bridge,
            mac: bridge_mac(&settings.bridge).unwrap_or_else(|| settings.hardware_address()),
            subnets: &settings.subnets,
            node: &cx.config.node_name,
            policies: &self.policies,
            others: &self.others,
            pods: &pods,
        })
    }

    /// When [`Policies::step`] has something to do although nothing happens.
    pub(in crate::node) fn wake(&self) -> Option<Mono> {
        self.due().filter(|_| self.dirty && self.running.is_none())
    }

    /// Whether a pod waits that the OCI runtime could start now. Else more pods join it until [`Policies::due`]: each
    /// change takes CPU from the starts.
    fn hurries(&self, pods: &Pods, parallel: usize) -> bool {
        self.failures == 0 && !self.waiting.is_empty() && pods.starting() < parallel
    }

    /// When the next change may begin. `None`: at once.
    fn due(&self) -> Option<Mono> {
        let (waited_for, rested) = self.not_before?;
        Some(if self.waiting.is_empty() { rested } else { waited_for })
    }

    /// Starts the pause after a change that took this long.
    fn rest(&mut self, now: Mono, took: Duration) {
        let after = |share| now.after(PAUSE.max(took.saturating_mul(share)).min(RETRY_AT_MOST));
        self.not_before = Some((after(SHARE_WHILE_WAITED_FOR), after(SHARE)));
    }

    /// Processes the result of the last step: the waiting pods, and their answers.
    pub(super) fn applied(&mut self, cx: &mut Context, done: Done) -> Result<Answered, StoreError> {
        let Some((held, since, waited)) = self.running.take() else { return Ok((BTreeSet::new(), Ok(()))) };
        let now = cx.mono();
        self.rest(now, now.since(since));
        let result = match done {
            Done::Looked(true) => {
                self.held = held;
                Ok(())
            }
            // Also after a check: then the tables are missing.
            Done::Looked(false) => {
                (self.held, self.not_before, self.dirty) = (Held::Other, None, true);
                self.waiting.extend(waited);
                return Ok((BTreeSet::new(), Ok(())));
            }
            Done::Replaced(Ok(around)) => {
                self.held = held;
                self.tell_neighbours(cx, around)?;
                Ok(())
            }
            Done::Cleared(Ok(())) => {
                self.held = held;
                Ok(())
            }
            Done::Cleared(Err(why)) if self.failures >= CLEAR_AT_MOST => {
                log::warn!("rules of policies that are gone may be in the kernel: {why}");
                self.held = held;
                Ok(())
            }
            Done::Replaced(Err(why)) | Done::Cleared(Err(why)) => Err(why),
        };
        match &result {
            Ok(()) => self.failures = 0,
            Err(why) => {
                let pause = retry_after(self.failures);
                (self.not_before, self.dirty) = (Some((now.after(pause), now.after(pause))), true);
                if self.held == Held::Unknown {
                    self.held = Held::Other;
                }
                self.failures += 1;
                self.trouble = format!("its network policies cannot be applied: {why}");
                if self.failures == 1 && !self.policies.is_empty() {
                    log::error!("NetworkPolicies: {why}");
                    let text = format!("Pods are guarded as before, and new ones wait: {why}");
                    cx.node_event(true, "NetworkPoliciesNotApplied", &text)?;
                }
            }
        }
        Ok((waited, result.map_err(|_| self.trouble.clone())))
    }

    fn tell_neighbours(&mut self, cx: &mut Context, around: Option<String>) -> Result<(), StoreError> {
        let Some(why) = around else { return Ok(()) };
        if !std::mem::replace(&mut self.neighbours_told, true) {
            log::warn!("pods with the capability NET_RAW can go around policies for pods of this node: {why}");
            let text = format!("Pods with NET_RAW can reach their neighbours on this node around policies: {why}");
            cx.node_event(true, "NetworkPoliciesIncomplete", &text)?;
        }
        Ok(())
    }

    /// Says once of each policy that isolates because it is not understood.
    fn tell_denied(&mut self, cx: &mut Context, denied: BTreeMap<Name, String>) -> Result<(), StoreError> {
        for (name, why) in &denied {
            if self.told.get(name) == Some(why) {
                continue;
            }
            log::error!("NetworkPolicy {}/{} lets nothing through: {why}", name.0, name.1);
            if self.told.len() < TOLD_AT_MOST {
                let text =
                    format!("NetworkPolicy {}/{} isolates its pods, and lets nothing through: {why}", name.0, name.1);
                cx.node_event(true, "NetworkPolicyNotUnderstood", &text)?;
            }
        }
        self.told = denied;
        Ok(())
    }
}

/// Pause after a failed attempt that followed this number of failures.
fn retry_after(failures: u32) -> Duration {
    RETRY.saturating_mul(1 << failures.min(6)).min(RETRY_AT_MOST)
}

/// The present hardware address of the bridge: a bridge that was made for another subnet keeps its own.
fn bridge_mac(bridge: &str) -> Option<[u8; 6]> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{bridge}/address")).ok()?;
    let bytes: Vec<u8> =
        text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>().ok()?;
    bytes.try_into().ok()
}

fn is_view(key: &ObjectKey) -> bool {
    [POLICY_VIEW, POLICY_PEERS].contains(&key.kind.as_str())
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::pod::record::{ContainerKind, ContainerRecord, ContainerState, PodRecord};

    #[test]
    fn a_waiting_pod_shortens_the_pause_between_changes() {
        let mut policies = Policies::open(true, &Store::in_memory().unwrap()).unwrap();
        assert_eq!(policies.wake(), None, "the first change begins at once");
        policies.rest(Mono(1_000), Duration::from_millis(100));
        assert_eq!(policies.wake(), Some(Mono(2_000)));
        let key = ObjectKey { kind: POLICY_VIEW.into(), namespace: "ns".into(), name: "deny".into() };
        policies.put(&key, Some(serde_json::json!({})));
        assert!(policies.holds_back("a", &["10.0.0.2".parse().unwrap()]));
        assert_eq!(policies.wake(), Some(Mono(1_100)));
        policies.rest(Mono(1_000), Duration::from_millis(1));
        assert_eq!(policies.wake(), Some(Mono(1_050)), "pods that come together wait for one change");
    }

    #[test]
    fn waiting_pod_is_held_only_while_the_runtime_is_busy() {
        let mut policies = policies();
        let mut pods = Pods::default();
        assert!(!policies.hurries(&pods, 2), "no pod waits");
        policies.waiting.insert("waits".to_owned());
        for (uid, hurries) in [("a", true), ("b", false)] {
            assert!(policies.hurries(&pods, 2));
            let starting = ContainerState::Starting { id: uid.into(), reason: String::new(), message: String::new() };
            let container = ContainerRecord { state: starting, ..ContainerRecord::new(ContainerKind::App) };
            let mut record = PodRecord { uid: uid.to_owned(), ..PodRecord::default() };
            record.containers.insert("c".to_owned(), container);
            pods.insert(Entry::new(Rc::default(), record));
            assert_eq!(policies.hurries(&pods, 2), hurries, "{uid}");
        }
        (policies.failures, pods) = (1, Pods::default());
        assert!(!policies.hurries(&pods, 2), "it is answered, and tries again by itself");
    }

    fn policies() -> Policies {
        Policies::open(true, &Store::in_memory().unwrap()).unwrap()
    }

    fn put(policies: &mut Policies, name: &str, body: Option<serde_json::Value>) {
        let key = ObjectKey { kind: POLICY_VIEW.into(), namespace: "ns".into(), name: name.into() };
        policies.put(&key, body);
    }

    #[test]
    fn kernel_that_refuses_is_asked_less_and_less_often() {
        let pauses = [0, 1, 2, 3, 4, 5, 6, 7, u32::MAX].map(|failures| retry_after(failures).as_secs());
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn long_change_pauses_for_a_minute_at_most() {
        let mut policies = policies();
        policies.rest(Mono(0), Duration::ZERO);
        assert_eq!(policies.not_before, Some((Mono(50), Mono(50))));
        policies.rest(Mono(0), Duration::from_secs(6));
        assert_eq!(policies.not_before, Some((Mono(6_000), Mono(60_000))));
        policies.rest(Mono(0), Duration::from_secs(3600));
        assert_eq!(policies.not_before, Some((Mono(60_000), Mono(60_000))));
    }

    #[test]
    fn pod_waits_only_while_there_is_a_policy() {
        let mut policies = policies();
        let ips: [IpAddr; 1] = ["10.0.0.2".parse().unwrap()];
        policies.dirty = false;
        assert!(!policies.holds_back("a", &ips) && !policies.dirty);
        put(&mut policies, "deny", Some(serde_json::json!({})));
        policies.dirty = false;
        assert!(!policies.holds_back("on the node's network", &[]) && !policies.dirty);
        assert!(policies.holds_back("a", &ips) && policies.dirty);
        assert_eq!(policies.coming.keys().collect::<Vec<_>>(), ["a"]);
        put(&mut policies, "deny", None);
        assert!(!policies.holds_back("b", &ips));
        assert!(policies.waiting.contains("a"), "its answer comes with the next change");
    }

    /// The outcome of a run that was to make these tables, for which the pod `a` waits.
    fn applied(policies: &mut Policies, cx: &mut Context, done: Done) -> (usize, Result<(), String>) {
        policies.running = Some((Held::Tables("m".into()), Mono(0), BTreeSet::from(["a".to_owned()])));
        policies.dirty = false;
        let (pods, result) = policies.applied(cx, done).unwrap();
        (pods.len(), result)
    }

    #[test]
    fn refused_rules_are_tried_again_and_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(folder.path());
        let mut policies = policies();
        put(&mut policies, "deny", Some(serde_json::json!({})));
        for failures in 1..=3 {
            let (pods, result) = applied(&mut policies, &mut cx, Done::Replaced(Err("no nft".into())));
            assert!(pods == 1 && result.is_err_and(|why| why.contains("no nft")), "the pod retries by itself");
            assert!(policies.failures == failures && policies.dirty && policies.mark().is_none());
            assert_eq!(policies.held, Held::Other);
        }
        assert_eq!(cx.store.outbox().unwrap().len(), 1);
        assert_eq!(applied(&mut policies, &mut cx, Done::Replaced(Ok(None))), (1, Ok(())));
        assert!(policies.failures == 0 && !policies.dirty && policies.mark() == Some("m"));
    }

    #[test]
    fn look_at_the_kernel_lets_no_pod_in_without_tables() {
        let folder = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(folder.path());
        let mut policies = policies();
        assert_eq!(applied(&mut policies, &mut cx, Done::Looked(false)), (0, Ok(())));
        assert!(policies.waiting.contains("a") && policies.dirty && policies.due().is_none(), "they are made at once");
        assert_eq!(policies.held, Held::Other);
        assert_eq!(applied(&mut policies, &mut cx, Done::Looked(true)), (1, Ok(())));
        assert_eq!(policies.mark(), Some("m"));
    }

    #[test]
    fn node_without_nft_gives_up_to_clear_tables() {
        let folder = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(folder.path());
        let mut policies = policies();
        for _ in 0..CLEAR_AT_MOST {
            assert!(applied(&mut policies, &mut cx, Done::Cleared(Err("no nft".into()))).1.is_err() && policies.dirty);
        }
        assert_eq!(applied(&mut policies, &mut cx, Done::Cleared(Err("no nft".into()))), (1, Ok(())));
        assert!(!policies.dirty && policies.failures == 0);
        assert_eq!(cx.store.outbox().unwrap().len(), 0, "no policy is missed");
        policies.running = None;
        assert_eq!(policies.applied(&mut cx, Done::Cleared(Err("late".into()))).unwrap(), (BTreeSet::new(), Ok(())));
    }

    #[test]
    fn nothing_wakes_the_loop_without_a_change_or_during_one() {
        let mut policies = policies();
        policies.rest(Mono(0), Duration::ZERO);
        assert_eq!(policies.wake(), Some(Mono(50)));
        policies.running = Some((Held::Nothing, Mono(0), BTreeSet::new()));
        assert_eq!(policies.wake(), None, "its end is news");
        policies.running = None;
        policies.dirty = false;
        assert_eq!(policies.wake(), None);
        policies.held = Held::Tables("m".into());
        assert_eq!(policies.mark(), Some("m"));
        policies.lost();
        assert_eq!((policies.mark(), policies.wake()), (None, Some(Mono(50))));
    }
}
