//! One pod and all nodes: which of them fit, which is best, or why there is none. Pure.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::fit::{Node, Objection};
use super::picture::Picture;
use super::pod::Pod;
use super::score;
use super::volumes::{Blocked, Wanted};
use super::{affinity, spread};
use apimachinery::pace::Pace;

/// Pods for which others make room, by node: as if they were there already.
pub(super) type Nominated = BTreeMap<String, Vec<Arc<Pod>>>;

/// What is known once for all nodes. What is counted of other pods can be tried otherwise on one node and taken back.
pub(super) struct Cycle<'a> {
    pub(super) pod: &'a Pod,
    pub(super) picture: &'a Picture,
    /// Pods with at least the importance of this one.
    nominated: &'a Nominated,
    pub(super) volumes: Wanted<'a>,
    spread: spread::State<'a>,
    affinity: affinity::State<'a>,
}

impl<'a> Cycle<'a> {
    /// The reason is one for which no node will do.
    pub(super) async fn new(
        pod: &'a Pod,
        picture: &'a Picture,
        nominated: &'a Nominated,
        pace: &mut Pace,
    ) -> Result<Self, Blocked> {
        let volumes = picture.volumes.of_pod(&pod.key.0, &pod.spec, |node| picture.nodes.contains_key(node))?;
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
        let spread = spread::State::required(pod, picture, pace).await;
        Ok(Self { pod, picture, nominated, volumes, spread, affinity: near })
    }

    /// Why the pod cannot be on a node as it is.
    pub(super) fn objection(&mut self, node: &'a Node) -> Option<Objection> {
        self.objection_if(node, node)
    }

    /// Why the pod cannot be on a node that became `tried`; none if it can: with those for whom room is made there, and, as
    /// they may go elsewhere, without them.
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
        if let Some(objection) = node.objection(&pod.spec, &pod.needs) {
            return Some(objection);
        }
        if !node.reaches(&self.volumes.terms) {
            return Some(Objection::new("node(s) had volume node affinity conflict", false));
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
    ) -> Result<Choice<'a>, BTreeMap<&'a str, Objection>> {
        let nodes = &self.picture.nodes;
        // Others made room for it there.
        if let Some(node) = nodes.get(nominated)
            && self.objection(node).is_none()
        {
            return Ok(Choice { node: &node.name, next: None });
        }
        let enough = enough(nodes.len());
        let (mut fitting, mut objections, mut next) = (Vec::new(), Vec::new(), None);
        let behind = (Bound::Included(from), Bound::Unbounded);
        let before = (Bound::Unbounded, Bound::Excluded(from));
        for (name, node) in nodes.range::<str, _>(behind).chain(nodes.range::<str, _>(before)) {
            if fitting.len() >= enough {
                next = Some(name.as_str());
                break;
            }
            match self.objection(node) {
                None => fitting.push(node),
                Some(objection) => objections.push((node.name.as_str(), objection)),
            }
            pace.look().await;
        }
        if fitting.is_empty() {
            pace.look().await;
        }
        let best = score::best(self.pod, self.picture, &fitting, pace).await;
        best.map(|node| Choice { node: &node.name, next }).ok_or_else(|| objections.into_iter().collect())
    }
}

pub(super) fn number(pods: &[Arc<Pod>]) -> i64 {
    i64::try_from(pods.len()).unwrap_or(i64::MAX)
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

/// What kube-scheduler says of so many nodes (K8s pkg/scheduler/framework, `FitError`).
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
