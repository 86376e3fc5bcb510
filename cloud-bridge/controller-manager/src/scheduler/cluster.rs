//! The scheduler's model of the cluster, its queue, and the next action. Pure: objects and outcomes come in, decisions
//! go out; times are of a monotonic clock.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::asleep::{Hint, Wishes};
use super::cache::Known;
use super::cycle::{Cycle, Nominated, fit_error};
use super::fit::Node;
use super::picture::{NodeNews, Picture};
use super::pod::{Pod, PodKey};
use super::preemption::{self, Candidate, Outcome};
use super::queue::{Queue, Waiting};
use super::volumes::Blocked;
use apimachinery::pace::Pace;

/// What to do for one pod.
#[derive(Debug)]
pub(super) enum Decision {
    /// Bind it to this node. The pod counts as placed from now on.
    Bind { waiting: Box<Waiting>, node: String },
    /// Writes into these claims, by name and uid, that their volumes must be made on this node. The pod waits for them.
    Select { pod: Arc<Pod>, node: String, claims: Vec<(String, String)> },
    /// Report why it has no node: a new reason, or the end of its nomination.
    Tell { failure: Failure, unnominated: bool },
    /// Report the reason, and delete these pods, so that there is room for it on the node.
    Preempt { failure: Failure, node: String, victims: Vec<Arc<Pod>>, outdone: Vec<Arc<Pod>> },
    /// It was evaluated, and there is nothing to report.
    Nothing,
}

/// A pod without a node.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) pod: Arc<Pod>,
    pub(super) message: String,
    /// Time since which its object has the condition that it has no node.
    pub(super) since: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) picture: Picture,
    queue: Queue,
    /// Name of the node where the next search begins: nodes take turns if not all are evaluated.
    from: String,
}

impl Cluster {
    /// Adds or changes a node.
    pub(super) fn node(&mut self, name: &str, labels: Value, node: &Value) {
        let news = self.picture.node(name, labels, node);
        let Some(node) = self.picture.nodes.get(name).filter(|_| news != NodeNews::None) else { return };
        let relabelled = news == NodeNews::Relabelled;
        self.queue.wake(|wishes| match hint(node, wishes) {
            // Pods on it count elsewhere now, and domains of spread pods may be others.
            Hint::No => Hint::perhaps_if(relabelled && wishes.pod.looks_at_pods() || wishes.pod.spread_by_taints()),
            hint => hint,
        });
    }

    /// A node went.
    pub(super) fn node_gone(&mut self, name: &str) {
        if self.picture.node_gone(name) {
            // Where it counted, there are fewer domains now; a volume that was to be made there is made elsewhere.
            self.queue.wake(|Wishes { pod, .. }| {
                if pod.claims().next().is_some() { Hint::Likely } else { Hint::perhaps_if(pod.looks_at_pods()) }
            });
        }
    }

    /// Adds or changes a pod.
    pub(super) fn pod(&mut self, pod: impl Into<Arc<Pod>>) {
        let pod = pod.into();
        if pod.ended || pod.node.is_empty() && !pod.wanted {
            self.pod_gone(&pod.key);
        } else if pod.node.is_empty() {
            // Placed a moment ago, and this is older news.
            if self.picture.placed(&pod.key).is_none_or(|(_, placed)| placed.uid != pod.uid) {
                self.leave(&pod.key);
                self.queue.put(pod);
            }
        } else {
            self.placed(pod);
        }
    }

    /// Adds or changes a pod with a node.
    fn placed(&mut self, pod: Arc<Pod>) {
        self.queue.remove(&pod.key);
        // Most news of a pod are of its status.
        if self.picture.placed(&pod.key).is_some_and(|(node, before)| **node == *pod.node && **before == *pod) {
            return;
        }
        let before = self.picture.leave(&pod.key);
        self.picture.place(&pod.node, Arc::clone(&pod));
        let Some((node, before)) = before else { return self.came(&pod) };
        let moved = *node != *pod.node;
        if moved || before.needs != pod.needs {
            self.room_on(&node);
        }
        // A pod on its way out no longer counts where pods are spread.
        if moved || before.labels != pod.labels || before.deleting != pod.deleting {
            self.left(&before);
            self.came(&pod);
        }
    }

    /// A pod went, or will not run again.
    pub(super) fn pod_gone(&mut self, key: &PodKey) {
        if let Some(waiting) = self.queue.remove(key) {
            // The room made for it is free.
            self.room_on(waiting.nominated());
        }
        self.leave(key);
    }

    fn leave(&mut self, key: &PodKey) {
        if let Some((node, pod)) = self.picture.leave(key) {
            self.room_on(&node);
            self.left(&pod);
        }
    }

    /// There is more room on a node.
    fn room_on(&mut self, node: &str) {
        if let Some(node) = self.picture.nodes.get(node) {
            self.queue.wake(|wishes| hint(node, wishes));
        }
    }

    /// A pod is where it was not: that may give a node to those that want to be near it.
    fn came(&mut self, other: &Pod) {
        let namespaces = &self.picture.namespaces;
        self.queue.wake(|Wishes { pod, .. }| Hint::likely_if(pod.is_helped_by(other, namespaces)));
    }

    /// A pod is not where it was: that may give a node to those that were kept off by it.
    fn left(&mut self, other: &Pod) {
        let namespaces = &self.picture.namespaces;
        self.queue.wake(|Wishes { pod, .. }| Hint::likely_if(pod.is_hindered_by(other, namespaces)));
    }

    /// A claim changed.
    pub(super) fn claim_changed(&mut self, key: &PodKey) {
        let (namespace, name) = key;
        self.queue.wake(|Wishes { pod, .. }| {
            Hint::likely_if(pod.key.0 == *namespace && pod.claims().any(|claim| claim == name))
        });
    }

    /// A volume or a class of volumes changed.
    pub(super) fn volumes_changed(&mut self) {
        self.queue.wake(|Wishes { pod, .. }| Hint::likely_if(pod.claims().next().is_some()));
    }

    /// The labels of a namespace changed.
    pub(super) fn namespace_changed(&mut self) {
        self.queue.wake(|Wishes { pod, .. }| Hint::perhaps_if(pod.affinity.has_required()));
    }

    /// A binding failed: the pod has no node after all, unless there was news of the pod meanwhile.
    pub(super) fn binding_failed(&mut self, waiting: Waiting, now: Duration) {
        let placed = self.picture.placed(&waiting.pod.key);
        if placed.is_some_and(|(_, placed)| Arc::ptr_eq(placed, &waiting.pod)) {
            self.leave(&waiting.pod.key);
            self.queue.try_again(waiting, now);
        }
    }

    /// Handles a failed write of a claim's selected node.
    pub(super) fn selection_failed(&mut self, key: &PodKey) {
        self.queue.wake_one(key, Hint::Likely);
    }

    /// Handles a failed deletion of a victim: the pod that was to get its place searches again.
    pub(super) fn preemption_failed(&mut self, key: &PodKey) {
        self.queue.nominate(key, "");
        self.stir();
    }

    /// All pods that are known.
    pub(super) fn pod_keys(&self) -> impl Iterator<Item = &PodKey> {
        self.picture.placed_keys().chain(self.queue.keys())
    }

    /// Something changed that may give any pod a node.
    pub(super) fn stir(&mut self) {
        self.queue.wake(|_| Hint::Likely);
    }

    /// When to ask for the next decision: zero if now.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.queue.deadline()
    }

    /// Returns what to do for the next pod. Other tasks run meanwhile; the state here does not change.
    pub(super) async fn next(&mut self, now: Duration, pace: &mut Pace) -> Option<Decision> {
        let key = self.queue.pop(now)?;
        let waiting = self.queue.get(&key)?;
        let pod = Arc::clone(&waiting.pod);
        let (own, nominated) = (waiting.nominated(), self.nominated(pod.priority));
        let mut known = self.picture.cache.take(&pod);
        let search = Search { picture: &self.picture, nominated: &nominated, from: &self.from };
        let place = search.attempt(&pod, own, &mut known, pace).await;
        self.picture.cache.put(known);
        match place {
            Ok(Place { node, claims, .. }) if !claims.is_empty() => {
                self.queue.wait(&key, now);
                Some(Decision::Select { pod, node, claims })
            }
            Ok(Place { node, next, .. }) => {
                let waiting = Box::new(self.queue.remove(&key)?);
                if let Some(next) = next {
                    self.from = next;
                }
                self.picture.place(&node, Arc::clone(&pod));
                self.came(&pod);
                Some(Decision::Bind { waiting, node })
            }
            Err(NoPlace::Yet) => {
                self.queue.wait(&key, now);
                Some(Decision::Nothing)
            }
            Err(NoPlace::Told { message, outcome, kept_off_by_pods }) => {
                let decision = self.failed(&pod, message, outcome, now);
                self.queue.note_kept_off(&key, kept_off_by_pods);
                decision
            }
        }
    }

    fn failed(&mut self, pod: &Arc<Pod>, message: String, outcome: Outcome, now: Duration) -> Option<Decision> {
        let same = self.queue.get(&pod.key)?.told.as_deref() == Some(message.as_str());
        let (news, waiting) = (!same, self.queue.failed(&pod.key, now, same)?);
        waiting.told = Some(message.clone());
        let failure = Failure { pod: Arc::clone(pod), message, since: waiting.since.clone() };
        let Outcome::Victims(Candidate { node, victims, .. }) = outcome else {
            let hopeless = matches!(outcome, Outcome::NoHelp(_));
            let unnominated = hopeless && !waiting.nominated().is_empty();
            if unnominated {
                self.queue.nominate(&pod.key, "");
            }
            return Some(if news || unnominated { Decision::Tell { failure, unnominated } } else { Decision::Nothing });
        };
        self.queue.nominate(&pod.key, &node);
        let outdone = self.outdone(pod.priority, &node);
        for other in &outdone {
            self.queue.nominate(&other.key, "");
            self.queue.get_ready(&other.key);
        }
        Some(Decision::Preempt { failure, node, victims, outdone })
    }

    /// Less important pods that were to get a place on the node, and may not get it now.
    fn outdone(&self, priority: i64, node: &str) -> Vec<Arc<Pod>> {
        let outdone = self.queue.nominated().filter(|one| one.nominated() == node && one.pod.priority < priority);
        outdone.map(|one| Arc::clone(&one.pod)).collect()
    }

    /// Nominated pods with at least this priority.
    fn nominated(&self, priority: i64) -> Nominated {
        let mut nominated = Nominated::new();
        for one in self.queue.nominated().filter(|one| one.pod.priority >= priority) {
            nominated.entry(one.nominated().to_owned()).or_default().push(Arc::clone(&one.pod));
        }
        nominated
    }
}

/// How far a change of a node may help a pod to a place on it.
fn hint(node: &Node, wishes: &Wishes) -> Hint {
    if wishes.kept_off_by_pods { Hint::No } else { node.hint(&wishes.pod) }
}

/// A node for a pod.
struct Place {
    node: String,
    /// The claims, by name and uid, to write first.
    claims: Vec<(String, String)>,
    /// Where the next search begins.
    next: Option<String>,
}

/// Reason why a pod fits on no node.
enum NoPlace {
    /// Its volume is being created. Kubernetes does not report this either.
    Yet,
    /// A reason to report, with which the attempt ends.
    Told { message: String, outcome: Outcome, kept_off_by_pods: bool },
}

/// The search for a node.
struct Search<'a> {
    picture: &'a Picture,
    nominated: &'a Nominated,
    /// Name of the node where it begins.
    from: &'a str,
}

impl Search<'_> {
    /// Finds a node for the pod, or the reason why none fits.
    async fn attempt(&self, pod: &Pod, own: &str, known: &mut Known, pace: &mut Pace) -> Result<Place, NoPlace> {
        let nodes = self.picture.nodes.len();
        if nodes == 0 {
            let words = "no nodes available to schedule pods".to_owned();
            let outcome = Outcome::NoHelp(words.clone());
            return Err(NoPlace::Told { message: words, outcome, kept_off_by_pods: false });
        }
        let with = |mut message: String, outcome: Outcome, kept_off_by_pods: bool| {
            if let Some(words) = outcome.words() {
                message = format!("{message} {words}");
            }
            NoPlace::Told { message, outcome, kept_off_by_pods }
        };
        let cycle = Cycle::new(pod, self.picture, self.nominated, known, pace).await;
        let mut cycle = cycle.map_err(|blocked| match blocked {
            Blocked::Making => NoPlace::Yet,
            Blocked::Because(why) => {
                with(format!("0/{nodes} nodes are available: {why}."), preemption::is_no_help(pod, nodes), false)
            }
        })?;
        let objections = match cycle.choose(own, self.from, pace).await {
            Ok(choice) => {
                let claims = cycle.volumes.to_make.iter().map(|(name, uid)| ((*name).to_owned(), (*uid).to_owned()));
                let next = choice.next.map(str::to_owned);
                return Ok(Place { node: choice.node.to_owned(), claims: claims.collect(), next });
            }
            Err(objections) => objections,
        };
        pace.look().await;
        let refused = objections.refused.iter().map(|(reason, number)| (*reason, *number));
        let reasons = objections.nodes.values().flat_map(|(_, objection)| &objection.reasons);
        let message = fit_error(nodes, refused.chain(reasons.map(|reason| (&**reason, 1))));
        pace.look().await;
        let by_pods = objections.nodes.values().all(|(_, objection)| objection.by_pods);
        let kept_off_by_pods = by_pods && objections.refused.is_empty();
        let outcome = preemption::preempt(&mut cycle, own, &objections, pace).await;
        Err(with(message, outcome, kept_off_by_pods))
    }
}

/// The condition with the reason why a pod has no node, as a strategic merge patch of its status.
pub(super) fn unschedulable_patch(failure: &Failure, now: &str) -> Value {
    let since = failure.since.as_deref().unwrap_or(now);
    json!({"metadata": {"uid": failure.pod.uid}, "status": {"conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": failure.message,
        "lastProbeTime": null, "lastTransitionTime": since,
    }]}})
}
