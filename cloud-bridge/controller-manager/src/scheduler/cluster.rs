//! The scheduler's picture of the cluster and its queue, and what is to be done next. Pure: objects and outcomes come in,
//! decisions go out; times are of a monotonic clock.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::cycle::{Cycle, Nominated, fit_error};
use super::picture::Picture;
use super::pod::{Pod, PodKey};
use super::preemption::{self, Candidate, Outcome};
use super::queue::{Queue, Waiting};
use super::volumes::Blocked;

/// What to do for one pod.
#[derive(Debug)]
pub(super) enum Decision {
    /// Bind it to this node. The pod counts as placed from now on.
    Bind { waiting: Box<Waiting>, node: String },
    /// Tell these claims, by name and uid, that their volumes are to be made on this node. The pod waits for them.
    Select { pod: Arc<Pod>, node: String, claims: Vec<(String, String)> },
    /// Tell why it has no node: not said yet in these words, or room is made for it no more.
    Tell { failure: Failure, unnominated: bool },
    /// Tell it, and delete these pods, so that there is room for it on the node.
    Preempt { failure: Failure, node: String, victims: Vec<Arc<Pod>>, outdone: Vec<Arc<Pod>> },
    /// It was looked at, and there is nothing to say.
    Nothing,
}

/// A pod without a node.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) pod: Arc<Pod>,
    pub(super) message: String,
    /// Since when its object says that it has none.
    pub(super) since: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) picture: Picture,
    queue: Queue,
}

impl Cluster {
    /// A node came or changed.
    pub(super) fn node(&mut self, name: &str, labels: Value, node: &Value) {
        if self.picture.node(name, labels, node) {
            self.stir();
        }
    }

    /// A node went.
    pub(super) fn node_gone(&mut self, name: &str) {
        if self.picture.nodes.remove(name).is_some() {
            // Where it counted, there are fewer domains now.
            self.stir();
        }
    }

    /// A pod came or changed.
    pub(super) fn pod(&mut self, pod: Pod) {
        if pod.ended || pod.node.is_empty() && !pod.wanted {
            self.pod_gone(&pod.key);
        } else if pod.node.is_empty() {
            // Placed a moment ago, and this is older news.
            if self.picture.placed(&pod.key).is_none_or(|(_, placed)| placed.uid != pod.uid) {
                self.leave(&pod.key);
                self.queue.put(Arc::new(pod));
            }
        } else {
            self.placed(pod);
        }
    }

    /// A pod that has a node came or changed.
    fn placed(&mut self, pod: Pod) {
        self.queue.remove(&pod.key);
        let before = self.picture.leave(&pod.key);
        let moved = before.as_ref().is_none_or(|(node, _)| *node != pod.node);
        let less = before.as_ref().is_some_and(|(_, before)| moved || before.needs != pod.needs);
        // A pod on its way out no longer counts where pods are spread.
        let other = before.is_none_or(|(_, before)| before.labels != pod.labels || before.deleting != pod.deleting);
        self.picture.place(pod.node.clone(), Arc::new(pod));
        if less {
            self.stir();
        } else if moved || other {
            self.stir_those_near_pods();
        }
    }

    /// A pod went, or will not run again.
    pub(super) fn pod_gone(&mut self, key: &PodKey) {
        if self.queue.remove(key).is_some_and(|waiting| !waiting.nominated.is_empty()) {
            // The room made for it is free.
            self.stir();
        }
        self.leave(key);
    }

    fn leave(&mut self, key: &PodKey) {
        if self.picture.leave(key).is_some() {
            self.stir();
        }
    }

    /// A binding failed: the pod has no node after all.
    pub(super) fn binding_failed(&mut self, waiting: Waiting, now: Duration) {
        self.leave(&waiting.pod.key);
        self.queue.try_again(waiting, now);
    }

    /// A claim was not told where its volume is to be made.
    pub(super) fn selection_failed(&mut self, key: &PodKey) {
        self.queue.wake(|pod| pod.key == *key);
    }

    /// A pod that was to go is still there: whoever was to get its place looks again.
    pub(super) fn preemption_failed(&mut self, key: &PodKey) {
        if let Some(waiting) = self.queue.get_mut(key) {
            waiting.nominated.clear();
        }
        self.stir();
    }

    /// Forgets what a fresh list does not contain.
    pub(super) fn retain_pods(&mut self, listed: &HashSet<PodKey>) {
        let known = self.picture.placed_keys().chain(self.queue.keys());
        let gone: Vec<PodKey> = known.filter(|key| !listed.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| self.pod_gone(key));
    }

    /// Forgets nodes that a fresh list does not contain.
    pub(super) fn retain_nodes(&mut self, listed: &HashSet<PodKey>) {
        let gone: Vec<String> = self
            .picture
            .nodes
            .keys()
            .filter(|name| !listed.contains(&(String::new(), (*name).clone())))
            .cloned()
            .collect();
        gone.iter().for_each(|name| self.node_gone(name));
    }

    /// Something changed that may give any pod a node.
    pub(super) fn stir(&mut self) {
        self.queue.wake(|_| true);
    }

    /// Other pods are where they were not: that may give a node to those that look at other pods.
    pub(super) fn stir_those_near_pods(&mut self) {
        self.queue.wake(|pod| pod.affinity.has_required() || pod.spread.iter().any(|one| one.required));
    }

    /// When to ask for the next decision: zero if now.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.queue.deadline()
    }

    /// What to do for the pod that is next.
    pub(super) fn next(&mut self, now: Duration) -> Option<Decision> {
        let key = self.queue.pop(now)?;
        let waiting = self.queue.get(&key)?;
        let pod = Arc::clone(&waiting.pod);
        let nominated = waiting.nominated.clone();
        match attempt(&self.picture, &self.nominated(pod.priority), &pod, &nominated) {
            Ok((node, claims)) if !claims.is_empty() => {
                self.queue.wait(&key, now);
                Some(Decision::Select { pod, node, claims })
            }
            Ok((node, _)) => {
                let waiting = Box::new(self.queue.remove(&key)?);
                self.picture.place(node.clone(), pod);
                self.stir_those_near_pods();
                Some(Decision::Bind { waiting, node })
            }
            Err(NoPlace::Yet) => {
                self.queue.wait(&key, now);
                Some(Decision::Nothing)
            }
            Err(NoPlace::Told(message, outcome)) => self.failed(&pod, message, outcome, now),
        }
    }

    fn failed(&mut self, pod: &Arc<Pod>, message: String, outcome: Outcome, now: Duration) -> Option<Decision> {
        let waiting = self.queue.failed(&pod.key, now)?;
        let news = waiting.told.as_deref() != Some(message.as_str());
        waiting.told = Some(message.clone());
        let failure = Failure { pod: Arc::clone(pod), message, since: waiting.since.clone() };
        let Outcome::Victims(Candidate { node, victims, .. }) = outcome else {
            let hopeless = matches!(outcome, Outcome::NoHelp(_));
            let unnominated = hopeless && !std::mem::take(&mut waiting.nominated).is_empty();
            return Some(if news || unnominated { Decision::Tell { failure, unnominated } } else { Decision::Nothing });
        };
        waiting.nominated.clone_from(&node);
        let outdone = self.outdone(pod.priority, &node);
        for other in &outdone {
            if let Some(waiting) = self.queue.get_mut(&other.key) {
                waiting.nominated.clear();
            }
            self.queue.get_ready(&other.key);
        }
        Some(Decision::Preempt { failure, node, victims, outdone })
    }

    /// Less important pods that were to get a place on the node, and may not get it now.
    fn outdone(&self, priority: i64, node: &str) -> Vec<Arc<Pod>> {
        let outdone = self.queue.all().filter(|one| one.nominated == node && one.pod.priority < priority);
        outdone.map(|one| Arc::clone(&one.pod)).collect()
    }

    /// Pods of at least this importance for which others make room.
    fn nominated(&self, priority: i64) -> Nominated {
        let mut nominated = Nominated::new();
        for one in self.queue.all().filter(|one| !one.nominated.is_empty() && one.pod.priority >= priority) {
            nominated.entry(one.nominated.clone()).or_default().push(Arc::clone(&one.pod));
        }
        nominated
    }
}

/// A node for the pod, with the claims that are to be told of it first.
type Place = (String, Vec<(String, String)>);

/// Why there is no node for a pod.
enum NoPlace {
    /// Its volume is being made. Kubernetes says nothing of this, either.
    Yet,
    /// This is told, and so may go.
    Told(String, Outcome),
}

/// A node for the pod, or why there is none.
fn attempt(picture: &Picture, nominated: &Nominated, pod: &Pod, own: &str) -> Result<Place, NoPlace> {
    let nodes = picture.nodes.len();
    if nodes == 0 {
        let words = "no nodes available to schedule pods".to_owned();
        return Err(NoPlace::Told(words.clone(), Outcome::NoHelp(words)));
    }
    let with = |message: String, outcome: Outcome| match outcome.words() {
        Some(words) => NoPlace::Told(format!("{message} {words}"), outcome),
        None => NoPlace::Told(message, outcome),
    };
    let cycle = Cycle::new(pod, picture, nominated).map_err(|blocked| match blocked {
        Blocked::Making => NoPlace::Yet,
        Blocked::Because(why) => {
            with(format!("0/{nodes} nodes are available: {why}."), preemption::is_no_help(pod, nodes))
        }
    })?;
    let objections = match cycle.choose(own) {
        Ok(node) => {
            let claims = cycle.volumes.to_make.iter().map(|(name, uid)| ((*name).to_owned(), (*uid).to_owned()));
            return Ok((node.to_owned(), claims.collect()));
        }
        Err(objections) => objections,
    };
    let reasons = objections.values().flat_map(|one| &one.reasons);
    let message = fit_error(nodes, reasons.map(|reason| (reason.as_str(), 1)));
    Err(with(message, preemption::preempt(&cycle, own, &objections)))
}

/// The condition that says why a pod has no node, as a strategic merge patch of its status.
pub(super) fn unschedulable_patch(failure: &Failure, now: &str) -> Value {
    let since = failure.since.as_deref().unwrap_or(now);
    json!({"metadata": {"uid": failure.pod.uid}, "status": {"conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": failure.message,
        "lastProbeTime": null, "lastTransitionTime": since,
    }]}})
}
