//! From the result of the metrics to the number of replicas: stabilization, rates and limits (K8s horizontal.go
//! `normalizeDesiredReplicas` and `normalizeDesiredReplicasWithBehaviors`). Decisions only.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerBehavior};

use super::conditions::{ABLE_TO_SCALE, Conditions, SCALING_LIMITED};
use super::memory::{Dated, Memory};
use super::replica_calculator::ceil;

/// Maximum increase without a behavior: this multiple of the present replicas, or this number.
const UP_FACTOR: i32 = 2;
const UP_LEAST: i32 = 4;

const ABOVE_MAX: (&str, &str) = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const BELOW_MIN: (&str, &str) = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_FAST: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const TOO_FAST_DOWN: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const WITHIN: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");
const DOWN_STABILIZED: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const UP_STABILIZED: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);

/// Input of the decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) current: i32,
    pub(crate) min: i32,
    pub(crate) max: i32,
    /// The window of scaling down where a behavior names none.
    pub(crate) stabilization: Duration,
    pub(crate) now: Duration,
}

/// The desired number of replicas if metrics demand `desired`; the conditions have the reason.
pub(crate) fn normalize(
    desired: i32,
    bounds: Bounds,
    behavior: Option<&HorizontalPodAutoscalerBehavior>,
    memory: &mut Memory,
    conditions: &mut Conditions,
) -> i32 {
    let (stable, why) = match behavior {
        None => (highest(desired, bounds.stabilization, bounds.now, &memory.recommendations), DOWN_STABILIZED),
        Some(behavior) => stabilize(desired, bounds, behavior, &memory.recommendations),
    };
    memory.recommend(desired, bounds.now);
    let (reason, message) =
        if stable == desired { ("ReadyForNewScale", "recommended size matches current size") } else { why };
    conditions.set(ABLE_TO_SCALE, true, reason, message);
    let (wanted, (reason, message)) = match behavior {
        None => by_factor(stable, bounds),
        Some(behavior) => by_rate(stable, bounds, behavior, memory),
    };
    conditions.set(SCALING_LIMITED, wanted != stable, reason, message);
    wanted
}

/// The highest recommendation within the window.
fn highest(desired: i32, window: Duration, now: Duration, recommendations: &[Dated]) -> i32 {
    let recent = recommendations.iter().filter(|(_, at)| now.saturating_sub(*at) <= window);
    recent.map(|(replicas, _)| *replicas).fold(desired, i32::max)
}

fn stabilize(
    desired: i32,
    bounds: Bounds,
    behavior: &HorizontalPodAutoscalerBehavior,
    recommendations: &[Dated],
) -> (i32, (&'static str, &'static str)) {
    let seconds = |rules: &Option<HPAScalingRules>| {
        let window = rules.as_ref().and_then(|rules| rules.stabilization_window_seconds);
        window.map(|seconds| Duration::from_secs(seconds.try_into().unwrap_or_default()))
    };
    let up = seconds(&behavior.scale_up).unwrap_or_default();
    let down = seconds(&behavior.scale_down).unwrap_or(bounds.stabilization);
    let within = |window: Duration| {
        let recent = recommendations.iter().filter(move |(_, at)| bounds.now.saturating_sub(*at) < window);
        recent.map(|(replicas, _)| *replicas)
    };
    let least = within(up).fold(desired, i32::min);
    let most = within(down).fold(desired, i32::max);
    let why = if desired >= bounds.current { UP_STABILIZED } else { DOWN_STABILIZED };
    (bounds.current.max(least).min(most), why)
}

fn by_factor(desired: i32, bounds: Bounds) -> (i32, (&'static str, &'static str)) {
    let limit = bounds.current.saturating_mul(UP_FACTOR).max(UP_LEAST);
    let (most, why) = if bounds.max > limit { (limit, TOO_FAST) } else { (bounds.max, ABOVE_MAX) };
    if desired < bounds.min {
        (bounds.min, BELOW_MIN)
    } else if desired > most {
        (most, why)
    } else {
        (desired, WITHIN)
    }
}

fn by_rate(
    desired: i32,
    bounds: Bounds,
    behavior: &HorizontalPodAutoscalerBehavior,
    memory: &Memory,
) -> (i32, (&'static str, &'static str)) {
    let current = bounds.current;
    if desired > current {
        let limit = limit(behavior.scale_up.as_ref(), true, bounds, memory).max(current);
        let (most, why) = if bounds.max > limit { (limit, TOO_FAST) } else { (bounds.max, ABOVE_MAX) };
        if desired > most {
            return (most, why);
        }
    } else if desired < current {
        let limit = limit(behavior.scale_down.as_ref(), false, bounds, memory).min(current);
        let (least, why) = if bounds.min < limit { (limit, TOO_FAST_DOWN) } else { (bounds.min, BELOW_MIN) };
        if desired < least {
            return (least, why);
        }
    }
    (desired, WITHIN)
}

/// How far the policies let it go in a direction.
fn limit(rules: Option<&HPAScalingRules>, up: bool, bounds: Bounds, memory: &Memory) -> i32 {
    let Some(rules) = rules else { return bounds.current };
    let select = rules.select_policy.as_deref().unwrap_or("Max");
    let changed = |events: &[Dated], period: i32| {
        let period = Duration::from_secs(period.try_into().unwrap_or_default());
        let recent = events.iter().filter(|(_, at)| bounds.now.saturating_sub(*at) < period);
        recent.fold(0_i32, |sum, (by, _)| sum.saturating_add(*by))
    };
    let policies = rules.policies.as_deref().unwrap_or_default();
    let proposals = policies.iter().map(|policy| {
        let added = changed(&memory.ups, policy.period_seconds);
        let removed = changed(&memory.downs, policy.period_seconds);
        let start = bounds.current.saturating_sub(added).saturating_add(removed);
        let part = f64::from(policy.value) / 100.0;
        match (policy.type_.as_str(), up) {
            ("Pods", true) => start.saturating_add(policy.value),
            ("Pods", false) => start.saturating_sub(policy.value),
            (_, true) => ceil(f64::from(start) * (1.0 + part)),
            (_, false) => ceil((f64::from(start) * (1.0 - part)).trunc()),
        }
    });
    let limit = match (select, up) {
        ("Disabled", _) => None,
        ("Min", true) | ("Max", false) => proposals.min(),
        ("Min", false) | (_, true) => proposals.max(),
        (_, false) => proposals.min(),
    };
    limit.unwrap_or(bounds.current)
}
