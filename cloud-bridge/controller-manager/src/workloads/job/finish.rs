//! Whether a Job is to end, and why (K8s pkg/controller/job/job_controller.go `syncJob`). The reason is written before
//! anything is done about it, so that a restart ends it for the same one.

use std::time::Duration;

use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::context::{Context, Progress};
use super::policy::{self, Verdict};
use crate::workloads::batch::{COMPLETE, FAILED};

pub(super) const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";
pub(super) const FAILURE_TARGET: &str = "FailureTarget";
pub(super) const SUSPENDED: &str = "Suspended";

/// Why a Job fails.
const REASONS: [&str; 5] =
    ["BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy", "FailedIndexes", "MaxFailedIndexesExceeded"];

/// A Job is to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finish {
    pub(super) succeeds: bool,
    pub(super) reason: String,
    pub(super) message: String,
    /// Whether the status has it.
    pub(super) is_told: bool,
}

impl Finish {
    fn fails(reason: &str, message: impl Into<String>) -> Self {
        Self { succeeds: false, reason: reason.to_owned(), message: message.into(), is_told: false }
    }

    fn succeeds(reason: &str, message: impl Into<String>) -> Self {
        Self { succeeds: true, ..Self::fails(reason, message) }
    }

    /// The condition before all pods have ended.
    pub(super) fn interim(&self) -> &'static str {
        if self.succeeds { SUCCESS_CRITERIA_MET } else { FAILURE_TARGET }
    }

    /// The reason of the event about a failure.
    pub(super) fn event(&self) -> &'static str {
        REASONS.iter().find(|reason| **reason == self.reason).copied().unwrap_or("JobFailed")
    }

    /// The final condition.
    pub(super) fn terminal(&self) -> &'static str {
        if self.succeeds { COMPLETE } else { FAILED }
    }
}

/// The reason to end it: an existing condition, its failures, its deadline or its policies, in this order.
pub(super) fn decided(context: &Context<'_>, progress: &Progress<'_>) -> Option<Finish> {
    told(context, SUCCESS_CRITERIA_MET)
        .or_else(|| told(context, FAILURE_TARGET))
        .or_else(|| by_failure_policy(context))
        .or_else(|| by_limit(context, progress))
        .or_else(|| by_indexes(context, progress))
        .or_else(|| {
            let message = policy::success(context.spec, &progress.indexes).filter(|_| context.is_indexed())?;
            Some(Finish::succeeds("SuccessPolicy", message))
        })
}

/// The Job ends because enough pods have succeeded. Evaluated when no more pods need to be created.
pub(super) fn completed(context: &Context<'_>, progress: &Progress<'_>) -> Option<Finish> {
    let enough = match context.spec.completions {
        Some(completions) => progress.succeeded >= completions,
        // Any success ends a Job without a number of completions.
        None => progress.succeeded > 0,
    };
    (enough && context.active().is_empty())
        .then(|| Finish::succeeds("CompletionsReached", "Reached expected number of succeeded pods"))
}

fn told(context: &Context<'_>, kind: &str) -> Option<Finish> {
    let condition = context.condition(kind).filter(|one| one.status == "True")?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(Finish {
        succeeds: kind == SUCCESS_CRITERIA_MET,
        reason: text(&condition.reason),
        message: text(&condition.message),
        is_told: true,
    })
}

fn by_failure_policy(context: &Context<'_>) -> Option<Finish> {
    context.spec.pod_failure_policy.as_ref()?;
    let failed = context.pods.iter().filter(|pod| context.is_failed(pod));
    failed.map(|pod| policy::of_failed(context.spec, pod)).find_map(|verdict| match verdict {
        Verdict::FailsJob(why) => Some(Finish::fails("PodFailurePolicy", why)),
        _ => None,
    })
}

fn by_limit(context: &Context<'_>, progress: &Progress<'_>) -> Option<Finish> {
    if progress.failed > context.backoff_limit() || is_past_restarts(context) {
        return Some(Finish::fails("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
    }
    let past = time_left(context).is_some_and(|left| left.is_zero());
    past.then(|| Finish::fails("DeadlineExceeded", "Job was active longer than specified deadline"))
}

/// Its containers, which are restarted in their pods, have been so too often (K8s `pastBackoffLimitOnFailure`).
fn is_past_restarts(context: &Context<'_>) -> bool {
    let spec = context.spec.template.spec.as_ref();
    if spec.and_then(|spec| spec.restart_policy.as_deref()) != Some("OnFailure") {
        return false;
    }
    let pods = context.pods.iter().filter(|pod| matches!(pod.phase(), "Running" | "Pending"));
    let containers =
        pods.flat_map(|pod| pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses));
    let restarts = containers.fold(0_i32, |sum, one| sum.saturating_add(one.restart_count));
    restarts > 0 && restarts >= context.backoff_limit()
}

/// How long it may still be active, if that is bounded.
pub(super) fn time_left(context: &Context<'_>) -> Option<Duration> {
    let seconds = context.spec.active_deadline_seconds.filter(|_| !context.is_suspended())?;
    context.status.start_time.as_ref()?;
    let passed = context.job.started().map_or(Duration::ZERO, |started| context.now.age(started));
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()).saturating_sub(passed))
}

fn by_indexes(context: &Context<'_>, progress: &Progress<'_>) -> Option<Finish> {
    let failed = progress.failed_indexes.as_ref()?.total();
    if context.spec.max_failed_indexes.is_some_and(|most| failed > most) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(Finish::fails("MaxFailedIndexesExceeded", message));
    }
    let all = failed > 0 && failed.saturating_add(progress.indexes.total()) >= context.completions();
    all.then(|| Finish::fails("FailedIndexes", "Job has failed indexes"))
}

/// Sets a condition. One that is false is not added. Whether that changed anything.
pub(super) fn set_condition(
    context: &Context<'_>,
    status: &mut JobStatus,
    kind: &str,
    value: bool,
    (reason, message): (&str, &str),
) -> bool {
    let now = Some(Time(context.now.clock));
    let condition = JobCondition {
        type_: kind.to_owned(),
        status: if value { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: now.clone(),
        last_transition_time: now,
    };
    match status.conditions.iter_mut().flatten().find(|one| one.type_ == kind) {
        Some(before) => {
            let same = before.status == condition.status
                && before.reason == condition.reason
                && before.message == condition.message;
            if !same {
                *before = condition;
            }
            !same
        }
        None if value => {
            status.conditions.get_or_insert_default().push(condition);
            true
        }
        None => false,
    }
}
