//! One pod and all nodes: which of them fit, which is best, or why none fits. Pure.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::cache::{Known, Passed, Refused, Screen};
use super::fit::{Node, Objection};
use super::picture::Picture;
use super::pod::{Pod, number};
use super::score;
use super::volumes::{Blocked, Wanted};
use super::{affinity, limits, spread};
use crate::placement;
use apimachinery::pace::Pace;

/// Nominated pods by node, counted as if they ran there.
pub(super) type Nominated = BTreeMap<String, Vec<Arc<Pod>>>;

/// Reason for which each node is left out while another pod has a claim that one pod alone may use.
const USED: &str = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";

/// State that is computed once for all nodes. Counts of other pods can be changed for one node and restored.
pub(super) struct Cycle<'a> {
    pub(super) pod: &'a Pod,
    pub(super) picture: &'a Picture,
    /// Pods with at least the importance of this one.
    nominated: &'a Nominated,
    pub(super) volumes: Wanted<'a>,
    spread: spread::State<'a>,
    affinity: &'a mut affinity::State,
    screen: &'a mut Screen,
}

/// Whether another pod on a node has one of these claims (K8s pkg/scheduler/framework/plugins/volumerestrictions,
/// `calPreFilterState`).
fn is_used(pod: &Pod, picture: &Picture, exclusive: &[&str]) -> bool {
    let has = |other: &Arc<Pod>| {
        other.key.0 == pod.key.0 && other.key != pod.key && other.claims().any(|claim| exclusive.contains(&claim))
    };
    !exclusive.is_empty() && picture.nodes.values().any(|node| node.pods.values().any(has))
}

impl<'a> Cycle<'a> {
    /// `known`: for pods like this one. The reason is one for which no node will do.
    pub(super) async fn new(
        pod: &'a Pod,
        picture: &'a Picture,
        nominated: &'a Nominated,
        known: &'a mut Known,
        pace: &mut Pace,
    ) -> Result<Self, Blocked> {
        let volumes = picture.volumes.of_pod(pod, |node| picture.nodes.contains_key(node))?;
        if is_used(pod, picture, &volumes.exclusive) {
            return Err(Blocked::Because(format!("{} {USED}", picture.nodes.len())));
        }
        let Known { near, screen, .. } = known;
        let counts = match near.take() {
            Some(counts) => counts,
            None => count_near(pod, picture, pace).await,
        };
        if matches!(screen, Screen::Wanted) {
            *screen = Screen::Made(Arc::new(ask_all(pod, picture, pace).await));
        }
        let spread = spread::State::required(pod, picture, pace).await;
        Ok(Self { pod, picture, nominated, volumes, spread, affinity: near.insert(counts), screen })
    }

    /// Why the pod cannot be on a node as it is, one that does not refuse its spec.
    pub(super) fn objection(&mut self, node: &'a Node) -> Option<Objection> {
        self.objection_if(node, node)
    }

    /// Reason why the pod cannot run on a node that becomes `tried`; `None` if it can: both with the pods nominated
    /// there and, because they may run elsewhere, without them.
    pub(super) fn objection_if(&mut self, node: &'a Node, tried: &Node) -> Option<Objection> {
        let others = self.nominated.get(&node.name).map_or(&[][..], Vec::as_slice);
        let others: Vec<&'a Arc<Pod>> = others.iter().filter(|other| other.key != self.pod.key).collect();
        if !others.is_empty() {
            let mut with = tried.clone();
            others.iter().for_each(|other| self.add(node, &mut with, other));
            let objection = self.alone(&with);
            others.iter().for_each(|other| self.remove(node, &mut with, other));
            if objection.is_some() {
                return objection;
            }
        }
        self.alone(tried)
    }

    fn alone(&self, node: &Node) -> Option<Objection> {
        let pod = self.pod;
        if let Some(objection) = node.lacks(&pod.needs) {
            return Some(objection);
        }
        let volumes = &self.picture.volumes;
        if volumes.limits.exceeded(node, volumes, &self.volumes.counted) {
            return Some(Objection::new(limits::EXCEEDED, true));
        }
        let reasons = volumes.conflicts(node, &self.volumes);
        if !reasons.is_empty() {
            return Some(Objection { reasons, resolvable: false, by_pods: false });
        }
        let objection = self.spread.objection(pod, node);
        let objection = objection.or_else(|| self.affinity.objection(pod, &node.labels, &self.picture.namespaces));
        objection.map(|(reason, resolvable)| Objection { by_pods: true, ..Objection::new(reason, resolvable) })
    }

    /// Tries this pod on the node, too.
    pub(super) fn add(&mut self, node: &'a Node, tried: &mut Node, other: &'a Arc<Pod>) {
        self.count(node, other, 1);
        tried.add(Arc::clone(other));
    }

    /// Tries the node without this pod.
    pub(super) fn remove(&mut self, node: &'a Node, tried: &mut Node, other: &'a Arc<Pod>) {
        if tried.remove(&other.key).is_some() {
            self.count(node, other, -1);
        }
    }

    fn count(&mut self, node: &'a Node, other: &'a Pod, by: i64) {
        let namespaces = &self.picture.namespaces;
        self.affinity.count_theirs(self.pod, other, &node.labels, by, namespaces);
        self.affinity.count_own(self.pod, other, &node.labels, by, namespaces);
        self.spread.count(self.pod, other, node, by);
    }

    /// The best of enough nodes that fit, or what each node objects. The search begins at the node `from`.
    pub(super) async fn choose(
        &mut self,
        nominated: &str,
        from: &str,
        pace: &mut Pace,
    ) -> Result<Choice<'a>, Objections<'a>> {
        let (pod, nodes) = (self.pod, &self.picture.nodes);
        // Others made room for it there, or it can be nowhere else.
        for name in [nominated].into_iter().chain(placement::only_node(&pod.spec)) {
            if let Some(node) = nodes.get(name)
                && node.refusal(&pod.spec).is_none()
                && self.objection(node).is_none()
            {
                return Ok(Choice { node: &node.name, next: None });
            }
        }
        let enough = enough(nodes.len());
        let (mut fitting, mut objections, mut refused) = (Vec::new(), Vec::new(), Refused::new());
        let passed = if let Screen::Made(passed) = &*self.screen { Some(Arc::clone(passed)) } else { None };
        let behind = (Bound::Included(from), Bound::Unbounded);
        let before = (Bound::Unbounded, Bound::Excluded(from));
        let walk: Box<dyn Iterator<Item = &'a Node> + Send + '_> = match &passed {
            Some(passed) => {
                let names = passed.nodes.range::<str, _>(behind).chain(passed.nodes.range::<str, _>(before));
                Box::new(names.filter_map(|name| nodes.get(name)))
            }
            None => {
                let all = nodes.range::<str, _>(behind).chain(nodes.range::<str, _>(before));
                Box::new(all.map(|(_, node)| node))
            }
        };
        for node in walk {
            if fitting.len() >= enough {
                break;
            }
            let refusal = if passed.is_some() { None } else { node.refusal(&pod.spec) };
            if let Some(reason) = refusal {
                *refused.entry(reason).or_default() += 1;
            } else if let Some(objection) = self.objection(node) {
                objections.push((node, objection));
            } else {
                fitting.push(node);
            }
            pace.look().await;
        }
        match passed {
            Some(passed) => refused.clone_from(&passed.refused),
            None if refused.values().sum::<usize>() > nodes.len() / 2 => *self.screen = Screen::Wanted,
            None => {}
        }
        if fitting.is_empty() {
            pace.look().await;
        }
        let last = fitting.last().filter(|_| fitting.len() >= enough);
        let next = last.and_then(|last| next_start(nodes, &last.name, from));
        let best = score::best(pod, self.picture, &fitting, pace).await;
        best.map(|node| Choice { node: &node.name, next }).ok_or_else(|| {
            let nodes = objections.into_iter().map(|(node, objection)| (node.name.as_str(), (node, objection)));
            Objections { nodes: nodes.collect(), refused }
        })
    }
}

/// What all nodes object to a pod.
#[derive(Debug)]
pub(super) struct Objections<'a> {
    /// Those that do not refuse its spec, by name.
    pub(super) nodes: BTreeMap<&'a str, (&'a Node, Objection)>,
    /// Those that do.
    pub(super) refused: Refused,
}

/// Counts the pods near the nodes that matter for a pod.
async fn count_near(pod: &Pod, picture: &Picture, pace: &mut Pace) -> affinity::State {
    let mut near = affinity::State::default();
    let namespaces = &picture.namespaces;
    for kin in picture.affine() {
        pace.look().await;
        if kin.like.affinity.keeps_off(pod, namespaces) {
            for (others, node) in picture.located(&kin) {
                near.count_theirs(pod, kin.like, &node.labels, number(others), namespaces);
                pace.look().await;
            }
        }
    }
    for kin in picture.kin_of(&pod.affinity.required_scope()) {
        pace.look().await;
        if pod.affinity.minds(kin.like, namespaces) {
            for (others, node) in picture.located(&kin) {
                near.count_own(pod, kin.like, &node.labels, number(others), namespaces);
                pace.look().await;
            }
        }
    }
    near
}

/// Asks all nodes whether they refuse a pod.
async fn ask_all(pod: &Pod, picture: &Picture, pace: &mut Pace) -> Passed {
    let mut passed = Passed::default();
    for node in picture.nodes.values() {
        match node.refusal(&pod.spec) {
            Some(reason) => *passed.refused.entry(reason).or_default() += 1,
            None => {
                passed.nodes.insert(node.name.clone());
            }
        }
        pace.look().await;
    }
    passed
}

/// The node behind the last one of a search that began at `from` (K8s pkg/scheduler/schedule_one.go, `nextStartNodeIndex`);
/// none if it was everywhere.
fn next_start<'a>(nodes: &'a BTreeMap<String, Node>, last: &str, from: &str) -> Option<&'a str> {
    let first_from = |bound: Bound<&str>| {
        let mut behind = nodes.range::<str, _>((bound, Bound::Unbounded));
        behind.next().or_else(|| nodes.first_key_value()).map(|(name, _)| name.as_str())
    };
    let next = first_from(Bound::Excluded(last));
    next.filter(|_| next != first_from(Bound::Included(from)))
}

/// A node for a pod, and where the next search begins if this one ended early.
#[derive(Debug)]
pub(super) struct Choice<'a> {
    pub(super) node: &'a str,
    pub(super) next: Option<&'a str>,
}

/// The number of fitting nodes among which the best is chosen: all of a hundred, 5 % of many thousands (K8s
/// pkg/scheduler/schedule_one.go, `numFeasibleNodesToFind`).
fn enough(nodes: usize) -> usize {
    const LEAST: usize = 100;
    if nodes < LEAST {
        return nodes;
    }
    let percentage = 50_usize.saturating_sub(nodes / 125).max(5);
    LEAST.max(nodes.saturating_mul(percentage) / 100)
}

/// kube-scheduler's message for this number of nodes (K8s pkg/scheduler/framework, `FitError`).
pub(super) fn fit_error<'a>(nodes: usize, reasons: impl Iterator<Item = (&'a str, usize)>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (reason, count) in reasons {
        *counts.entry(reason).or_default() += count;
    }
    let mut texts: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    texts.sort();
    format!("0/{nodes} nodes are available: {}.", texts.join(", "))
}

#[cfg(test)]
mod tests {
    #[test]
    fn fewer_nodes_are_tried_the_more_there_are() {
        let cases = [(0, 0), (99, 99), (100, 100), (250, 120), (1000, 420), (5000, 500), (10_000, 500)];
        for (nodes, enough) in cases {
            assert_eq!(super::enough(nodes), enough, "{nodes} nodes");
        }
    }
}
