//! Preemption: the pods that make way for a more important one, if it fits nowhere (K8s
//! pkg/scheduler/framework/preemption and plugins/defaultpreemption). Pure.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use super::cycle::{Cycle, Objections, fit_error};
use super::fit::{Node, Objection};
use super::picture::Picture;
use super::pod::{Pod, PodKey};
use apimachinery::pace::Pace;

/// Number of nodes that are examined before one is chosen that breaks no budget: this many or a tenth of all, whichever
/// is more (K8s `minCandidateNodesAbsolute`, `minCandidateNodesPercentage`).
const CANDIDATES_MIN: usize = 100;

const NO_VICTIMS: &str = "No preemption victims found for incoming pod";
const NEVER: &str = "preemptionPolicy=Never";
const NO_HELP: &str = "Preemption is not helpful for scheduling";

/// A node, and the pods that have to go there, the most important first.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) node: String,
    pub(super) victims: Vec<Arc<Pod>>,
    /// Number of victims that break a budget.
    violations: usize,
}

/// What comes of the look for victims.
#[derive(Debug)]
pub(super) enum Outcome {
    Victims(Candidate),
    /// Others are on their way out already, or none may be sent.
    Ineligible(&'static str),
    NoHelp(String),
}

impl Outcome {
    /// What is said of it behind what the nodes object.
    pub(super) fn words(&self) -> Option<String> {
        match self {
            Self::Victims(_) => None,
            Self::Ineligible(why) => Some(format!("preemption: not eligible due to {why}.")),
            Self::NoHelp(why) => Some(format!("preemption: {why}")),
        }
    }
}

/// Chooses the victims if all nodes object to a pod, or returns why preemption does not help.
pub(super) async fn preempt<'a>(
    cycle: &mut Cycle<'a>,
    nominated: &str,
    objections: &Objections<'a>,
    pace: &mut Pace,
) -> Outcome {
    let (pod, picture) = (cycle.pod, cycle.picture);
    if pod.never_preempts {
        return Outcome::Ineligible(NEVER);
    }
    let helps = |(_, objection): &(&Node, Objection)| objection.resolvable;
    let hopeless = picture.nodes.contains_key(nominated) && !objections.nodes.get(nominated).is_some_and(helps);
    if !hopeless && is_being_freed(pod, picture, nominated) {
        return Outcome::Ineligible("a terminating pod on the nominated node");
    }
    let enough = CANDIDATES_MIN.max(picture.nodes.len() / 10);
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut reasons: Vec<Cow<'static, str>> = Vec::new();
    let mut looked_at = 0;
    for (node, objection) in objections.nodes.values() {
        pace.look().await;
        if !objection.resolvable {
            continue;
        }
        looked_at += 1;
        match victims(cycle, node, pace).await {
            Ok(candidate) => candidates.push(candidate),
            Err(objection) => reasons.extend(objection.reasons),
        }
        if candidates.len() >= enough && candidates.iter().any(|one| one.violations == 0) {
            break;
        }
    }
    if let Some(best) = best(candidates) {
        return Outcome::Victims(best);
    }
    let others = picture.nodes.len().saturating_sub(looked_at);
    let reasons = reasons.iter().map(|reason| (&**reason, 1));
    let reasons = reasons.chain((others > 0).then_some((NO_HELP, others)));
    Outcome::NoHelp(fit_error(picture.nodes.len(), reasons))
}

/// No node was looked at, because the pod itself cannot be placed.
pub(super) fn is_no_help(pod: &Pod, nodes: usize) -> Outcome {
    if pod.never_preempts {
        return Outcome::Ineligible(NEVER);
    }
    Outcome::NoHelp(fit_error(nodes, [(NO_HELP, nodes)].into_iter()))
}

/// Whether pods are on their way out of the node for this one.
fn is_being_freed(pod: &Pod, picture: &Picture, node: &str) -> bool {
    let going = |other: &Arc<Pod>| other.priority < pod.priority && other.deleting && other.preempted;
    picture.nodes.get(node).is_some_and(|node| node.pods.values().any(going))
}

/// The fewest victims on a node that make room for this pod: pods that break a budget are spared first, then the more
/// important ones. Yields to other tasks after each pod: a node that is away may have thousands of them.
async fn victims<'a>(cycle: &mut Cycle<'a>, node: &'a Node, pace: &mut Pace) -> Result<Candidate, Objection> {
    let mut less: Vec<&'a Arc<Pod>> = node.pods.values().filter(|other| other.priority < cycle.pod.priority).collect();
    if less.is_empty() {
        return Err(Objection::new(NO_VICTIMS, false));
    }
    let mut tried = node.clone();
    for &pod in &less {
        cycle.remove(node, &mut tried, pod);
        pace.look().await;
    }
    let objection = cycle.objection_if(node, &tried);
    if let Some(objection) = objection {
        put_back(cycle, node, &mut tried, &less, pace).await;
        return Err(objection);
    }
    less.sort_by(|one, other| importance(one).cmp(&importance(other)));
    let (breaking, others) = cycle.picture.budgets.split(less, pace).await;
    let mut victims: Vec<&'a Arc<Pod>> = Vec::new();
    let mut violations = 0;
    let breaking = breaking.into_iter().map(|pod| (pod, 1));
    for (pod, violation) in breaking.chain(others.into_iter().map(|pod| (pod, 0))) {
        cycle.add(node, &mut tried, pod);
        if cycle.objection_if(node, &tried).is_some() {
            cycle.remove(node, &mut tried, pod);
            victims.push(pod);
            violations += violation;
        }
        pace.look().await;
    }
    // As it was, for the next node.
    put_back(cycle, node, &mut tried, &victims, pace).await;
    victims.sort_by(|one, other| importance(one).cmp(&importance(other)));
    Ok(Candidate { node: node.name.clone(), victims: victims.into_iter().cloned().collect(), violations })
}

async fn put_back<'a>(cycle: &mut Cycle<'a>, node: &'a Node, tried: &mut Node, pods: &[&'a Arc<Pod>], pace: &mut Pace) {
    for &pod in pods {
        cycle.add(node, tried, pod);
        pace.look().await;
    }
}

/// The more important is the less.
fn importance(pod: &Pod) -> (Reverse<i64>, &str, &PodKey) {
    (Reverse(pod.priority), pod.start(), &pod.key)
}

/// The node where least is lost: no broken budgets, then the least important pods, then the fewest, then the youngest.
fn best(candidates: Vec<Candidate>) -> Option<Candidate> {
    let cost = |one: &Candidate| {
        let highest = one.victims.first().map_or(i64::MIN, |pod| pod.priority);
        // Each pod costs, even one of negative priority.
        let sum = one
            .victims
            .iter()
            .fold(0_i64, |sum, pod| sum.saturating_add(pod.priority.saturating_add(i64::from(i32::MAX) + 1)));
        let first = one.victims.iter().filter(|pod| pod.priority == highest).map(|pod| pod.start()).min();
        let first = first.unwrap_or_default().to_owned();
        (one.violations, highest, sum, one.victims.len(), Reverse(first))
    };
    candidates.into_iter().filter(|one| !one.victims.is_empty()).min_by_key(cost)
}
