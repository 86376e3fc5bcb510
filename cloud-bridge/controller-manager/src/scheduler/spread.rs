//! Pods evenly over domains: topology spread constraints (K8s pkg/scheduler/framework/plugins/podtopologyspread). Pure.

use std::collections::{BTreeMap, HashMap};

use serde_json::json;

use super::constraint::Constraint;
use super::fit::Node;
use super::picture::Picture;
use super::pod::Pod;
use super::selector::{is_empty, selects_some};
use apimachinery::pace::Pace;

impl Constraint {
    /// Default preferences of pods of a controller without own constraints (K8s `systemDefaultConstraints`). Kubernetes
    /// also counts the pods of a Service together, here only those of a controller.
    fn defaults(pod: &Pod) -> Vec<Self> {
        if pod.owner.is_empty() {
            return Vec::new();
        }
        let constraint = |topology_key: &str, max_skew| Self {
            required: false,
            max_skew,
            topology_key: topology_key.to_owned(),
            selector: json!({}),
            min_domains: 1,
            honor_affinity: true,
            honor_taints: false,
            owner: Some(pod.owner.clone()),
        };
        vec![constraint("kubernetes.io/hostname", 3), constraint("topology.kubernetes.io/zone", 5)]
    }

    /// Whether an existing pod counts for one in this namespace.
    pub(super) fn counts(&self, namespace: &str, other: &Pod) -> bool {
        !other.deleting && self.selects(namespace, other)
    }

    /// Same as [`Self::counts`], but includes terminating pods.
    pub(super) fn selects(&self, namespace: &str, other: &Pod) -> bool {
        if other.key.0 != namespace {
            return false;
        }
        match &self.owner {
            Some(owner) => other.owner == *owner,
            None => !is_empty(&self.selector) && selects_some(&self.selector, &other.labels),
        }
    }

    /// Whether the pods must be spread over this node, too.
    fn includes(&self, pod: &Pod, node: &Node) -> bool {
        (!self.honor_affinity || node.is_selected(&pod.spec)) && (!self.honor_taints || !node.is_tainted(&pod.spec))
    }
}

/// Numbers of pods by domain, for one constraint.
#[derive(Debug, Default)]
struct Domains<'a> {
    counts: HashMap<&'a str, i64>,
    /// Number of domains by their number of pods: the minimum is known during any trial.
    sizes: BTreeMap<i64, usize>,
}

impl<'a> Domains<'a> {
    fn add(&mut self, domain: &'a str, by: i64) {
        let count = self.counts.get(domain).copied();
        if let Some(before) = count
            && let Some(domains) = self.sizes.get_mut(&before)
        {
            *domains -= 1;
            if *domains == 0 {
                self.sizes.remove(&before);
            }
        }
        let sum = count.unwrap_or_default().saturating_add(by);
        self.counts.insert(domain, sum);
        *self.sizes.entry(sum).or_default() += 1;
    }

    fn at(&self, domain: &str) -> i64 {
        self.counts.get(domain).copied().unwrap_or_default()
    }

    /// The number in the emptiest domain.
    fn least(&self, constraint: &Constraint) -> i64 {
        let domains = i64::try_from(self.counts.len()).unwrap_or(i64::MAX);
        let least = self.sizes.first_key_value().map_or(0, |(least, _)| *least);
        if domains < constraint.min_domains { 0 } else { least }
    }
}

/// Numbers of pods in each domain, for each constraint.
#[derive(Debug, Default)]
pub(super) struct State<'a> {
    constraints: Vec<Constraint>,
    domains: Vec<Domains<'a>>,
    /// Whether the list of domains is complete.
    closed: bool,
}

impl<'a> State<'a> {
    /// What keeps the pod off nodes.
    pub(super) async fn required(pod: &'a Pod, picture: &'a Picture, pace: &mut Pace) -> Self {
        let constraints: Vec<Constraint> = pod.spread.iter().filter(|one| one.required).cloned().collect();
        Self::over(constraints, pod, picture, None, true, pace).await
    }

    /// Scores for the pod on these nodes, on which it fits: only their domains count. The second value is whether a
    /// node must have all of the labels to count.
    pub(super) async fn preferred(
        pod: &'a Pod,
        picture: &'a Picture,
        nodes: &[&'a Node],
        pace: &mut Pace,
    ) -> (Self, bool) {
        let defaults = pod.spread.is_empty();
        let constraints = if defaults {
            Constraint::defaults(pod)
        } else {
            pod.spread.iter().filter(|one| !one.required).cloned().collect()
        };
        (Self::over(constraints, pod, picture, Some(nodes), !defaults, pace).await, !defaults)
    }

    async fn over(
        constraints: Vec<Constraint>,
        pod: &'a Pod,
        picture: &'a Picture,
        nodes: Option<&[&'a Node]>,
        all: bool,
        pace: &mut Pace,
    ) -> Self {
        let domains = constraints.iter().map(|_| Domains::default()).collect();
        let mut state = Self { domains, constraints, closed: false };
        if state.constraints.is_empty() {
            return state;
        }
        let of_all = nodes.is_none().then(|| picture.nodes.values()).into_iter().flatten();
        for node in nodes.into_iter().flatten().copied().chain(of_all) {
            state.add(pod, node, all, |_| true, 0);
            pace.look().await;
        }
        state.closed = nodes.is_some();
        for kin in picture.kin_in(&pod.key.0) {
            pace.look().await;
            if state.constraints.iter().any(|one| one.selects(&pod.key.0, kin.like)) {
                for (others, node) in picture.located(&kin) {
                    for other in others {
                        state.add(pod, node, all, |constraint| constraint.counts(&pod.key.0, other), 1);
                    }
                    pace.look().await;
                }
            }
        }
        state
    }

    /// Adds to the domains of a node, for the constraints that count. `all`: none if a label of another one is missing.
    fn add(&mut self, pod: &Pod, node: &'a Node, all: bool, counts: impl Fn(&Constraint) -> bool, by: i64) {
        if all && !self.is_labelled(node) {
            return;
        }
        for (constraint, domains) in self.constraints.iter().zip(&mut self.domains) {
            if let Some(value) = node.label(&constraint.topology_key)
                && (!self.closed || domains.counts.contains_key(value))
                && counts(constraint)
                && constraint.includes(pod, node)
            {
                domains.add(value, by);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.constraints.is_empty()
    }

    /// Whether the node has a value for the key of each constraint.
    pub(super) fn is_labelled(&self, node: &Node) -> bool {
        self.constraints.iter().all(|one| node.label(&one.topology_key).is_some())
    }

    /// `other` is on the node (`by` is 1), or no longer (-1).
    pub(super) fn count(&mut self, pod: &Pod, other: &Pod, node: &'a Node, by: i64) {
        if !self.is_empty() {
            self.add(pod, node, true, |constraint| constraint.counts(&pod.key.0, other), by);
        }
    }

    /// Why the pod cannot be on the node, and whether it could if others went.
    pub(super) fn objection(&self, pod: &Pod, node: &Node) -> Option<(&'static str, bool)> {
        for (constraint, domains) in self.constraints.iter().zip(&self.domains) {
            let Some(value) = node.label(&constraint.topology_key) else {
                return Some(("node(s) didn't match pod topology spread constraints (missing required label)", false));
            };
            let own = i64::from(selects_some(&constraint.selector, &pod.labels));
            let least = domains.least(constraint);
            if domains.at(value).saturating_add(own).saturating_sub(least) > constraint.max_skew {
                return Some(("node(s) didn't match pod topology spread constraints", true));
            }
        }
        None
    }

    /// The more, the fuller the node's domains are.
    #[expect(clippy::cast_precision_loss, reason = "counts of pods and domains, for a comparison")]
    pub(super) fn load(&self, node: &Node) -> f64 {
        let of = |(constraint, domains): (&Constraint, &Domains<'_>)| {
            let here = domains.at(node.label(&constraint.topology_key)?);
            // Few domains are not to count for less than many (K8s `topologyNormalizingWeight`).
            let weight = ((domains.counts.len() + 2) as f64).ln();
            Some(here as f64 * weight + (constraint.max_skew - 1) as f64)
        };
        self.constraints.iter().zip(&self.domains).filter_map(of).sum()
    }
}
