//! Policies of a Job for failed pods and succeeded indexes (K8s pkg/controller/job/pod_failure_policy.go,
//! success_policy.go).

use k8s_openapi::api::batch::v1::{
    JobSpec, PodFailurePolicyOnExitCodesRequirement as ExitCodes, PodFailurePolicyOnPodConditionsPattern as Pattern,
    PodFailurePolicyRule as Rule,
};

use super::indexes::Indexes;
use crate::workloads::pod::{ContainerStatus, Pod};

/// Verdict on a failed pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It counts against the limits.
    Counts,
    /// Handles the pod as if it had not failed.
    Ignored,
    FailsIndex,
    /// The whole Job fails; why.
    FailsJob(String),
}

/// The verdict of the first rule that matches a failed pod.
pub(super) fn of_failed(spec: &JobSpec, pod: &Pod) -> Verdict {
    let rules = spec.pod_failure_policy.iter().flat_map(|policy| &policy.rules);
    rules.enumerate().find_map(|(place, rule)| apply(rule, place, pod)).unwrap_or(Verdict::Counts)
}

fn apply(rule: &Rule, place: usize, pod: &Pod) -> Option<Verdict> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let why = match (&rule.on_exit_codes, &rule.on_pod_conditions) {
        (Some(codes), _) => {
            let (container, code) = failed_container(pod, codes)?;
            format!("Container {container} for pod {namespace}/{name} failed with exit code {code}")
        }
        (None, Some(patterns)) => {
            format!("Pod {namespace}/{name} has condition {}", matching_condition(pod, patterns)?)
        }
        (None, None) => return None,
    };
    match rule.action.as_str() {
        "Ignore" => Some(Verdict::Ignored),
        "FailIndex" => Some(Verdict::FailsIndex),
        "Count" => Some(Verdict::Counts),
        "FailJob" => Some(Verdict::FailsJob(format!("{why} matching FailJob rule at index {place}"))),
        _ => None,
    }
}

/// The first container that ended with an exit code that matches.
fn failed_container<'a>(pod: &'a Pod, wanted: &ExitCodes) -> Option<(&'a str, i32)> {
    let matching = |status: &'a ContainerStatus| {
        let code = status.state.terminated.as_ref()?.exit_code;
        let named = wanted.container_name.as_ref().is_none_or(|name| *name == status.name);
        let listed = match wanted.operator.as_str() {
            "In" => wanted.values.contains(&code),
            "NotIn" => !wanted.values.contains(&code),
            _ => false,
        };
        (named && code != 0 && listed).then_some((status.name.as_str(), code))
    };
    pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses).find_map(matching)
}

fn matching_condition<'a>(pod: &'a Pod, patterns: &[Pattern]) -> Option<&'a str> {
    let matches = |kind: &str, status: &str| {
        patterns.iter().any(|one| one.type_ == kind && one.status.as_deref().unwrap_or("True") == status)
    };
    let mut conditions = pod.status.conditions.iter();
    conditions.find(|one| matches(&one.type_, &one.status)).map(|one| one.type_.as_str())
}

/// Why the Job has succeeded, if a rule of its success policy accepts these indexes.
pub(super) fn success(spec: &JobSpec, succeeded: &Indexes) -> Option<String> {
    if succeeded.is_empty() {
        return None;
    }
    let completions = spec.completions.unwrap_or_default();
    let rules = &spec.success_policy.as_ref()?.rules;
    let met = rules.iter().position(|rule| match &rule.succeeded_indexes {
        Some(text) => {
            let wanted = Indexes::parse(text, completions);
            let both = wanted.common(succeeded);
            !wanted.is_empty() && (both == wanted.total() || rule.succeeded_count.is_some_and(|count| both >= count))
        }
        None => rule.succeeded_count.is_some_and(|count| succeeded.total() >= count),
    })?;
    Some(format!("Matched rules at index {met}"))
}
