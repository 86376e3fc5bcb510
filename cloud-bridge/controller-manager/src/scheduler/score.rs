//! Which of the nodes that fit is best: kube-scheduler's default plugins with their weights (K8s
//! pkg/scheduler/apis/config/v1/default_plugins.go), but for the locality of images. Pure.

use serde_json::Value;

use super::affinity::Preferences;
use super::fit::Node;
use super::needs::{Amounts, NonZero};
use super::picture::Picture;
use super::pod::{Pod, number};
use super::spread::State;
use apimachinery::json::{integer, items};
use apimachinery::pace::Pace;

/// The best score of a plugin.
const MAX: i64 = 100;

/// The best node; of those that are as good, the one with fewer pods, then by name.
pub(super) async fn best<'a>(pod: &Pod, picture: &Picture, nodes: &[&'a Node], pace: &mut Pace) -> Option<&'a Node> {
    if let [] | [_] = nodes {
        return nodes.first().copied();
    }
    let near = (2, pod_affinity(pod, picture, nodes, pace).await);
    let mut plugins = vec![(2, spread(pod, picture, nodes, pace).await), near];
    type Scores = fn(&Pod, &[&Node]) -> Vec<i64>;
    let alone: [(i64, Scores); 4] = [(3, taints), (2, node_affinity), (1, least_allocated), (1, balanced)];
    for (weight, scores) in alone {
        plugins.push((weight, scores(pod, nodes)));
        pace.look().await;
    }
    let total = |at: usize| -> i64 {
        plugins.iter().map(|(weight, scores)| weight * scores.get(at).copied().unwrap_or_default()).sum()
    };
    let ranked = nodes.iter().enumerate().map(|(at, node)| ((total(at), std::cmp::Reverse(node.pods.len())), *node));
    // Of equal ones the first.
    ranked.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, node)| node)
}

/// Scales the scores so that the highest becomes 100; with `reverse`, the lowest.
fn normalized(scores: Vec<i64>, reverse: bool) -> Vec<i64> {
    let most = scores.iter().copied().max().unwrap_or_default();
    let of = |score: i64| {
        let share = if most == 0 { 0 } else { share(score, most) };
        if reverse { MAX - share } else { share }
    };
    scores.into_iter().map(of).collect()
}

/// 0 to 100.
fn share(part: i64, whole: i64) -> i64 {
    if whole <= 0 {
        return 0;
    }
    let share = i128::from(part) * i128::from(MAX) / i128::from(whole);
    i64::try_from(share).unwrap_or_default().clamp(0, MAX)
}

fn taints(pod: &Pod, nodes: &[&Node]) -> Vec<i64> {
    let count = |node: &&Node| i64::try_from(node.dislikes(&pod.spec)).unwrap_or(i64::MAX);
    normalized(nodes.iter().map(count).collect(), true)
}

fn node_affinity(pod: &Pod, nodes: &[&Node]) -> Vec<i64> {
    let preferred = items(&pod.spec["affinity"]["nodeAffinity"], "preferredDuringSchedulingIgnoredDuringExecution");
    let weight = |term: &Value| integer(term, "weight").unwrap_or_default().clamp(0, MAX);
    let of = |node: &&Node| {
        preferred
            .iter()
            .filter(|term| node.matches_term(&term["preference"]))
            .fold(0_i64, |sum, term| sum.saturating_add(weight(term)))
    };
    normalized(nodes.iter().map(of).collect(), false)
}

async fn spread(pod: &Pod, picture: &Picture, nodes: &[&Node], pace: &mut Pace) -> Vec<i64> {
    let (state, labelled) = State::preferred(pod, picture, nodes, pace).await;
    if state.is_empty() {
        return Vec::new();
    }
    #[expect(clippy::cast_possible_truncation, reason = "a conversion from float saturates")]
    let load = |node: &&Node| (!labelled || state.is_labelled(node)).then(|| state.load(node).round() as i64);
    let loads: Vec<Option<i64>> = nodes.iter().map(load).collect();
    let most = loads.iter().flatten().copied().max().unwrap_or_default();
    let least = loads.iter().flatten().copied().min().unwrap_or_default();
    let of = |load: Option<i64>| match load {
        None => 0,
        Some(_) if most == 0 => MAX,
        Some(load) => share(most.saturating_add(least).saturating_sub(load), most),
    };
    loads.into_iter().map(of).collect()
}

async fn pod_affinity(pod: &Pod, picture: &Picture, nodes: &[&Node], pace: &mut Pace) -> Vec<i64> {
    let mut preferences = Preferences::default();
    let namespaces = &picture.namespaces;
    for kin in picture.affine() {
        pace.look().await;
        if kin.like.affinity.likes_or_dislikes(pod, namespaces) {
            for (others, node) in picture.located(&kin) {
                preferences.count_theirs(pod, kin.like, &node.labels, number(others), namespaces);
                pace.look().await;
            }
        }
    }
    for kin in picture.kin_of(&pod.affinity.preferred_scope()) {
        pace.look().await;
        if pod.affinity.likes_or_dislikes(kin.like, namespaces) {
            for (others, node) in picture.located(&kin) {
                preferences.count_own(pod, kin.like, &node.labels, number(others), namespaces);
                pace.look().await;
            }
        }
    }
    if preferences.is_empty() {
        return Vec::new();
    }
    let scores: Vec<i64> = nodes.iter().map(|node| preferences.score(&node.labels)).collect();
    let least = scores.iter().copied().min().unwrap_or_default();
    normalized(scores.into_iter().map(|score| score.saturating_sub(least)).collect(), false)
}

fn capacity(node: &Node) -> NonZero {
    let of = |name: &str| node.allocatable.get(name);
    NonZero { cpu: of("cpu").map_or(0, |q| q.millis()), memory: of("memory").map_or(0, |q| q.units()) }
}

/// The score is higher if less of the CPU and memory would be used.
fn least_allocated(pod: &Pod, nodes: &[&Node]) -> Vec<i64> {
    nodes.iter().map(|node| unallocated(pod, node)).collect()
}

fn unallocated(pod: &Pod, node: &Node) -> i64 {
    let (capacity, wanted) = (capacity(node), node.load.plus(pod.needs.load));
    let free = |capacity: i64, wanted: i64| share(capacity.saturating_sub(wanted).max(0), capacity);
    let scores = [(capacity.cpu, wanted.cpu), (capacity.memory, wanted.memory)];
    let counted: Vec<i64> =
        scores.iter().filter(|(all, _)| *all > 0).map(|(all, wanted)| free(*all, *wanted)).collect();
    let sum: i64 = counted.iter().sum();
    sum / i64::try_from(counted.len()).unwrap_or(1).max(1)
}

/// The score is higher if the used shares of CPU and memory are more equal. Ignores pods that request neither.
fn balanced(pod: &Pod, nodes: &[&Node]) -> Vec<i64> {
    let of = |list: &Amounts| NonZero {
        cpu: list.get("cpu").map_or(0, |q| q.millis()),
        memory: list.get("memory").map_or(0, |q| q.units()),
    };
    let wanted = of(&pod.needs.requests);
    if wanted == NonZero::default() {
        return Vec::new();
    }
    let score = |node: &&Node| {
        let (capacity, used) = (capacity(node), of(&node.used));
        MAX / 2 + (MAX / 2 + balance(used.plus(wanted), capacity) - balance(used, capacity)) / 2
    };
    nodes.iter().map(score).collect()
}

/// 50 to 100.
fn balance(used: NonZero, capacity: NonZero) -> i64 {
    if capacity.cpu <= 0 || capacity.memory <= 0 {
        return MAX;
    }
    MAX - (share(used.cpu, capacity.cpu) - share(used.memory, capacity.memory)).abs() / 2
}
