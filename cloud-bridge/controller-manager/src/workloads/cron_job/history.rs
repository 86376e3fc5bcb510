//! Which finished Jobs of a CronJob are no longer kept (K8s pkg/controller/cronjob/cronjob_controllerv2.go
//! `cleanupFinishedJobs`).

use super::context::Context;
use crate::workloads::batch::{Job, finished};

/// The Jobs that are to go, the oldest of those beyond a limit.
pub(super) fn surplus<'a>(context: &Context<'a>) -> Vec<&'a Job> {
    let mut surplus = oldest(context, "Complete", context.spec.successful_jobs_history_limit);
    surplus.extend(oldest(context, "Failed", context.spec.failed_jobs_history_limit));
    surplus
}

fn oldest<'a>(context: &Context<'a>, ended: &str, limit: Option<i32>) -> Vec<&'a Job> {
    let Some(limit) = limit else { return Vec::new() };
    let jobs = context.jobs.iter().copied().filter(|job| job.metadata.deletion_timestamp.is_none());
    let mut jobs: Vec<&Job> =
        jobs.filter(|job| finished(job.status.as_ref()).is_some_and(|one| one.type_ == ended)).collect();
    let start = |job: &Job| job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
    // Those that never began are the newest.
    jobs.sort_by_key(|job| (start(job).is_none(), start(job), job.metadata.name.clone()));
    jobs.truncate(jobs.len().saturating_sub(usize::try_from(limit).unwrap_or_default()));
    jobs
}
