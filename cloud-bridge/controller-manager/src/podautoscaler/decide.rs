//! The decision about an autoscaler, from the observed state of its target (K8s horizontal.go `reconcileAutoscaler`).
//! Decisions only.

use std::time::Duration;

use apimachinery::json::text;
use apimachinery::quantity::Quantity;
use apimachinery::selector::LabelSelector;
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    HPAScalingRules, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus, MetricStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::conditions::{ABLE_TO_SCALE, Conditions, SCALING_ACTIVE};
use super::limits::{Bounds, normalize};
use super::memory::Memory;
use super::options::Options;
use super::pods::by_labels;
use super::replica_calculator::{Question, Target, Tolerances};
use super::seen::{Scale, Seen};
use super::source::compute;

/// The time by the monotonic clock, and as written in objects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) passed: Duration,
    pub(crate) clock: Timestamp,
}

/// An event about the autoscaler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Told {
    fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { warning: true, reason, message: message.into() }
    }
}

/// How many replicas the target is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rescale {
    pub(crate) from: i32,
    pub(crate) to: i32,
    pub(crate) reason: String,
}

/// A decision. If it scales, status and events are complete only when the result of scaling is known.
#[derive(Debug, Clone)]
pub(crate) struct Decision {
    pub(crate) rescale: Option<Rescale>,
    conditions: Conditions,
    current: Option<i32>,
    desired: i32,
    /// How many were wanted before.
    before: i32,
    metrics: Option<Vec<MetricStatus>>,
    pub(crate) told: Vec<Told>,
    scaled: bool,
}

/// Which replicas an autoscaler allows, at the least.
fn least(spec: &HorizontalPodAutoscalerSpec) -> i32 {
    spec.min_replicas.unwrap_or(1)
}

/// The pods that metrics are wanted of, as a selector; `None` where something else decides.
pub(crate) fn wants_metrics<'a>(autoscaler: &HorizontalPodAutoscaler, scale: &'a Scale) -> Option<&'a str> {
    let spec = &autoscaler.spec;
    let current = scale.replicas();
    let decided = current == 0 || current > spec.max_replicas || current < least(spec);
    let readable = !scale.selector().is_empty() && LabelSelector::parse(scale.selector()).is_ok();
    (!decided && readable).then(|| scale.selector())
}

/// Decides. `others` has the selectors of other autoscalers of the namespace, by name.
pub(crate) fn decide(
    autoscaler: &HorizontalPodAutoscaler,
    seen: &Seen,
    others: &[(String, LabelSelector)],
    memory: &mut Memory,
    options: &Options,
    now: Now,
) -> Decision {
    let old = autoscaler.status.clone().unwrap_or_default();
    let mut decision = Decision {
        rescale: None,
        conditions: Conditions::new(old.conditions.unwrap_or_default(), now.clock),
        current: old.current_replicas,
        desired: old.desired_replicas,
        before: old.desired_replicas,
        metrics: old.current_metrics,
        told: Vec::new(),
        scaled: false,
    };
    let spec = &autoscaler.spec;
    let scale = match &seen.scale {
        Ok(scale) => scale,
        Err(why) => {
            decision.told.push(Told::warning("FailedGetScale", why));
            let message = format!("the HPA controller was unable to get the target's current scale: {why}");
            decision.conditions.set(ABLE_TO_SCALE, false, "FailedGetScale", message);
            return decision;
        }
    };
    let message = "the HPA controller was able to get the target's current scale";
    decision.conditions.set(ABLE_TO_SCALE, true, "SucceededGetScale", message);
    let current = scale.replicas();
    memory.prune(options.downscale_stabilization, now.passed);
    if memory.recommendations.is_empty() {
        memory.recommend(current, now.passed);
    }
    decision.current = Some(current);
    decision.metrics = None;
    let (desired, reason) = if current == 0 {
        let message = "scaling is disabled since the replica count of the target is zero";
        decision.conditions.set(SCALING_ACTIVE, false, "ScalingDisabled", message);
        decision.conditions.not_scaled_to_zero();
        (0, String::new())
    } else if current > spec.max_replicas {
        (spec.max_replicas, "Current number of replicas above Spec.MaxReplicas".to_owned())
    } else if current < least(spec) {
        (least(spec), "Current number of replicas below Spec.MinReplicas".to_owned())
    } else {
        let Some((asked, metric)) = by_metrics(&mut decision, autoscaler, seen, others, memory, options, now) else {
            return decision;
        };
        let bounds = Bounds {
            current,
            min: least(spec),
            max: spec.max_replicas,
            stabilization: options.downscale_stabilization,
            now: now.passed,
        };
        let reason = match asked {
            _ if asked > current => format!("{metric} above target"),
            _ if asked < current => "All metrics below target".to_owned(),
            _ => String::new(),
        };
        (normalize(asked, bounds, spec.behavior.as_ref(), memory, &mut decision.conditions), reason)
    };
    decision.desired = current;
    if desired != current {
        decision.rescale = Some(Rescale { from: current, to: desired, reason });
    }
    decision
}

/// The results of all metrics, and the highest; `None` if it is unknown, which the conditions then say.
fn by_metrics(
    decision: &mut Decision,
    autoscaler: &HorizontalPodAutoscaler,
    seen: &Seen,
    others: &[(String, LabelSelector)],
    memory: &mut Memory,
    options: &Options,
    now: Now,
) -> Option<(i32, String)> {
    let (spec, scale) = (&autoscaler.spec, seen.scale.as_ref().ok()?);
    // Of a failure the status keeps how many were wanted before.
    let failed = |decision: &mut Decision, error: String| {
        decision.told.push(Told::warning("FailedComputeMetricsReplicas", error));
        None
    };
    if let Err((event, reason, message)) = select(autoscaler, scale, seen, others, memory) {
        let shown = if event == "SelectorRequired" {
            "the HPA target's scale is missing a selector".to_owned()
        } else {
            message.clone()
        };
        decision.told.push(Told::warning(event, message.clone()));
        decision.conditions.set(SCALING_ACTIVE, false, reason, shown);
        return failed(decision, message);
    }
    let mut pods = seen.pods.clone().unwrap_or_default();
    memory.believe(&mut pods, now.clock);
    let question = Question {
        current: scale.replicas(),
        resource: "",
        container: "",
        target: Target::Average(0),
        tolerances: tolerances(spec, options),
        pods: &pods,
        options,
        clock: now.clock,
    };
    let wanted = spec.metrics.as_deref().unwrap_or_default();
    let (mut best, mut statuses, mut unknown) = (None::<(i32, String)>, Vec::new(), Vec::new());
    for metric in wanted {
        match compute(metric, seen, &question) {
            Ok(asked) => {
                statuses.push(asked.status);
                if best.as_ref().is_none_or(|(most, _)| *most == 0 || asked.replicas > *most) {
                    best = Some((asked.replicas, asked.name));
                }
            }
            Err(why) => {
                statuses.push(MetricStatus::default());
                decision.told.push(Told::warning(why.reason, why.cause.clone()));
                unknown.push(why);
            }
        }
    }
    decision.metrics = Some(statuses);
    let error = unknown.first().map(|first| {
        let (some, all) = (unknown.len(), wanted.len());
        format!("invalid metrics ({some} invalid out of {all}), first error is: {}", first.error)
    });
    // Where not all is known, it may be too much to go down.
    let enough = best.filter(|(asked, _)| unknown.is_empty() || *asked >= scale.replicas());
    match (enough, unknown.first()) {
        (Some((asked, name)), _) => {
            let message = format!("the HPA was able to successfully calculate a replica count from {name}");
            decision.conditions.set(SCALING_ACTIVE, true, "ValidMetricFound", message);
            Some((asked, name))
        }
        (None, Some(first)) => {
            let message = format!("the HPA was unable to compute the replica count: {}", first.cause);
            decision.conditions.set(SCALING_ACTIVE, false, first.reason, message);
            failed(decision, error.unwrap_or_default())
        }
        (None, None) => None,
    }
}

/// Requirements of a selector up to which it is remembered for other autoscalers: there may be hundreds with the same target.
const REMEMBERED: usize = 64;

/// Stores the selector of the target's pods, and checks that no other autoscaler selects some of them. An error has the
/// reasons of the event and of the condition.
fn select(
    autoscaler: &HorizontalPodAutoscaler,
    scale: &Scale,
    seen: &Seen,
    others: &[(String, LabelSelector)],
    memory: &mut Memory,
) -> Result<(), (&'static str, &'static str, String)> {
    let selector = scale.selector();
    if selector.is_empty() {
        return Err(("SelectorRequired", "InvalidSelector", "selector is required".to_owned()));
    }
    let parsed = LabelSelector::parse(selector).map_err(|why| {
        let why = format!("couldn't convert selector into a corresponding internal selector object: {why}");
        ("InvalidSelector", "InvalidSelector", why)
    })?;
    memory.selector = Some(parsed).filter(|parsed| parsed.len() <= REMEMBERED);
    let pods = match &seen.pods {
        Ok(pods) => pods,
        Err(why) => return Err(("FailedListPods", "FailedListPods", why.clone())),
    };
    let pods = by_labels(pods);
    let selects = |one: &LabelSelector| pods.iter().any(|pod| one.matches(&pod.object));
    let mut names: Vec<&str> = others.iter().filter(|(_, one)| selects(one)).map(|(name, _)| name.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    names.push(autoscaler.metadata.name.as_deref().unwrap_or_default());
    names.sort_unstable();
    let keys: Vec<String> = names.iter().map(|name| format!("{{{name} {}}}", seen.namespace)).collect();
    let why = format!("pods by selector {selector} are controlled by multiple HPAs: [{}]", keys.join(" "));
    Err(("AmbiguousSelector", "AmbiguousSelector", why))
}

fn tolerances(spec: &HorizontalPodAutoscalerSpec, options: &Options) -> Tolerances {
    let of = |rules: Option<&HPAScalingRules>| {
        let amount = Quantity::parse(&rules?.tolerance.as_ref()?.0).ok()?;
        // Thousandths are exact enough: a tolerance is some percent.
        Some(f64::from(i32::try_from(amount.millis()).unwrap_or(i32::MAX)) / 1000.0)
    };
    let behavior = spec.behavior.as_ref();
    Tolerances {
        up: of(behavior.and_then(|behavior| behavior.scale_up.as_ref())).unwrap_or(options.tolerance),
        down: of(behavior.and_then(|behavior| behavior.scale_down.as_ref())).unwrap_or(options.tolerance),
    }
}

impl Decision {
    /// Stores the result of scaling, and reports it.
    pub(crate) fn rescaled(&mut self, done: Result<(), String>, has_behavior: bool, memory: &mut Memory, now: Now) {
        let Some(Rescale { from, to, reason }) = &self.rescale else { return };
        match done {
            Ok(()) => {
                let message = format!("the HPA controller was able to update the target scale to {to}");
                self.conditions.set(ABLE_TO_SCALE, true, "SucceededRescale", message);
                self.conditions.not_scaled_to_zero();
                let message = format!("New size: {to}; reason: {reason}");
                self.told.push(Told { warning: false, reason: "SuccessfulRescale", message });
                if has_behavior {
                    memory.scaled(*from, *to, now.passed);
                }
                (self.desired, self.scaled) = (*to, true);
            }
            Err(why) => {
                let message = format!("New size: {to}; reason: {reason}; error: {why}");
                self.told.push(Told::warning("FailedRescale", message));
                let message = format!("the HPA controller was unable to update the target scale: {why}");
                self.conditions.set(ABLE_TO_SCALE, false, "FailedUpdateScale", message);
                self.desired = self.before;
            }
        }
    }

    /// The desired status; `None` if it is up to date.
    pub(crate) fn status(
        &self,
        autoscaler: &HorizontalPodAutoscaler,
        now: Now,
    ) -> Option<HorizontalPodAutoscalerStatus> {
        let old = autoscaler.status.clone().unwrap_or_default();
        let new = HorizontalPodAutoscalerStatus {
            conditions: Some(self.conditions.all.clone()).filter(|all| !all.is_empty()),
            current_metrics: self.metrics.clone(),
            current_replicas: self.current.filter(|current| *current != 0),
            desired_replicas: self.desired,
            last_scale_time: if self.scaled { Some(Time(now.clock)) } else { old.last_scale_time.clone() },
            observed_generation: None,
        };
        (new != old).then_some(new)
    }
}

/// Names the autoscaler of a decision, for messages.
pub(crate) fn reference(autoscaler: &HorizontalPodAutoscaler) -> String {
    let object = serde_json::to_value(&autoscaler.metadata).unwrap_or_default();
    format!("{}/{}", text(&object, "namespace"), text(&object, "name"))
}
