//! One pod and all nodes: which of them fit, which is best, or why there is none. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::fit::{Node, Objection};
use super::picture::Picture;
use super::pod::{Pod, PodKey};
use super::score;
use super::volumes::{Blocked, Wanted};
use super::{affinity, spread};

/// Pods for which others make room, by node: as if they were there already.
pub(super) type Nominated = BTreeMap<String, Vec<Arc<Pod>>>;

/// What is known once for all nodes.
#[derive(Clone)]
pub(super) struct Cycle<'a> {
    pub(super) pod: &'a Pod,
    pub(super) picture: &'a Picture,
    /// Pods with at least the importance of this one.
    nominated: &'a Nominated,
    pub(super) volumes: Wanted<'a>,
    spread: spread::State,
    affinity: affinity::State,
}

impl<'a> Cycle<'a> {
    /// The reason is one for which no node will do.
    pub(super) fn new(pod: &'a Pod, picture: &'a Picture, nominated: &'a Nominated) -> Result<Self, Blocked> {
        let volumes = picture.volumes.of_pod(&pod.key.0, &pod.spec, |node| picture.nodes.contains_key(node))?;
        let mut near = affinity::State::default();
        let all = pod.affinity.has_required();
        for (other, node) in picture.placed_pods(all) {
            near.count(pod, other, &node.labels, 1, &picture.namespaces);
        }
        let spread = spread::State::required(pod, picture.nodes.values());
        Ok(Self { pod, picture, nominated, volumes, spread, affinity: near })
    }

    /// Why the pod cannot be on a node; none if it can: with those for whom room is made there, and, as they may go
    /// elsewhere, without them.
    pub(super) fn objection(&self, node: &Node) -> Option<Objection> {
        let others = self.nominated.get(&node.name).map_or(&[][..], Vec::as_slice);
        let others: Vec<&Arc<Pod>> = others.iter().filter(|other| other.key != self.pod.key).collect();
        if !others.is_empty() {
            let mut with = self.clone();
            let mut node = Cow::Borrowed(node);
            for other in others {
                with.add(node.to_mut(), Arc::clone(other));
            }
            if let Some(objection) = with.alone(&node) {
                return Some(objection);
            }
        }
        self.alone(node)
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
        objection.map(|(reason, resolvable)| Objection::new(reason, resolvable))
    }

    /// As if this pod were on the node, too.
    pub(super) fn add(&mut self, node: &mut Node, other: Arc<Pod>) {
        self.count(node, &other, 1);
        node.add(other);
    }

    /// As if this pod were not on the node.
    pub(super) fn remove(&mut self, node: &mut Node, key: &PodKey) {
        if let Some(other) = node.remove(key) {
            self.count(node, &other, -1);
        }
    }

    fn count(&mut self, node: &Node, other: &Pod, by: i64) {
        self.affinity.count(self.pod, other, &node.labels, by, &self.picture.namespaces);
        self.spread.count(self.pod, other, node, by);
    }

    /// The best node of those that fit, or what each of them objects.
    pub(super) fn choose(&self, nominated: &str) -> Result<&'a str, BTreeMap<&'a str, Objection>> {
        // Others made room for it there.
        if let Some(node) = self.picture.nodes.get(nominated)
            && self.objection(node).is_none()
        {
            return Ok(&node.name);
        }
        let (mut fitting, mut objections) = (Vec::new(), BTreeMap::new());
        for node in self.picture.nodes.values() {
            match self.objection(node) {
                None => fitting.push(node),
                Some(objection) => drop(objections.insert(node.name.as_str(), objection)),
            }
        }
        score::best(self.pod, self.picture, &fitting).map(|node| node.name.as_str()).ok_or(objections)
    }
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
