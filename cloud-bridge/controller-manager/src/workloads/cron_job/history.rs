//! Which finished Jobs of a CronJob are no longer kept (K8s pkg/controller/cronjob/cronjob_controllerv2.go
//! `cleanupFinishedJobs`).

use k8s_openapi::api::batch::v1::Job;

use super::Context;
use crate::workloads::job::finished;

/// The first Job that is to go, the oldest of those beyond a limit.
pub(super) fn surplus<'a>(context: &Context<'a>) -> Option<&'a Job> {
    oldest(context, "Complete", context.spec.successful_jobs_history_limit)
        .or_else(|| oldest(context, "Failed", context.spec.failed_jobs_history_limit))
}

fn oldest<'a>(context: &Context<'a>, ended: &str, limit: Option<i32>) -> Option<&'a Job> {
    let limit = usize::try_from(limit?).unwrap_or_default();
    let jobs = context.jobs.iter().copied().filter(|job| job.metadata.deletion_timestamp.is_none());
    let jobs: Vec<&Job> =
        jobs.filter(|job| finished(job.status.as_ref()).is_some_and(|one| one.type_ == ended)).collect();
    let start = |job: &Job| job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
    // Those that never began are the newest.
    let age = |job: &&Job| (start(job).is_none(), start(job), job.metadata.name.clone());
    if jobs.len() > limit { jobs.into_iter().min_by_key(age) } else { None }
}
