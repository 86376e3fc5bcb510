//! CronJobs: a Job for each time of a schedule (K8s pkg/controller/cronjob). Decisions only.

mod context;
mod history;
mod next;
mod schedule;
mod status;
#[cfg(test)]
mod tests;

use std::time::Duration;

use apimachinery::cron::Schedule;
use apimachinery::key::ObjectKey;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::annotations::EDITED;
use super::batch::{Job, finished};
use super::body::Body;
use super::claim::controller_reference;
use super::now::Now;
use super::plan::{Action, Plan, Told};
use super::store::uid;
use super::template::Template;
use super::world::{Kind, World};
use context::Context;
use next::Times;
use schedule::Missed;

/// The annotation of a Job with the time that it is for.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// While the clock is wrong it is looked at this often.
const CLOCK_CHECK: Duration = Duration::from_secs(10);
/// A clock may be set back by so much, or by one interval of the schedule: then its last time is waited for.
const SET_BACK: SignedDuration = SignedDuration::from_hours(1);
/// A schedule is looked at no later than this, for the clock may be set.
const LONGEST_WAIT: Duration = Duration::from_mins(10);

/// The next step for a CronJob.
pub(crate) fn plan(world: &World, key: &ObjectKey, now: Now) -> Plan {
    let Some((cron_job, spec)) = world.cron_jobs.get(key).map(|one| (one, &one.spec)) else {
        return Plan::default();
    };
    let jobs = world.jobs.owned_by(uid(&cron_job.metadata)).collect();
    let status = cron_job.status.clone().unwrap_or_default();
    let context = Context { cron_job, spec, status, jobs, now: now.clock, clock_is_known: now.is_known() };
    let Next { due, again, told, mends } = context.next();
    if let Some(action) = mends {
        return Plan { told, ..Plan::one_by_one(vec![action]) };
    }
    let name = due.map(|due| context.job_name(due));
    let (status, mut news) = status::status(&context, due.zip(name.as_deref()));
    if let Some(action) = Action::status(Kind::CronJob, &cron_job.metadata, &context.status, &status) {
        return Plan::one_by_one(vec![action]).tell(news).again(again);
    }
    // Only now: the status has from them when the last one succeeded, and which time has had its Job.
    let surplus = history::surplus(&context);
    if !surplus.is_empty() {
        return context.delete(&surplus).again(again);
    }
    news.extend(told);
    let (Some(due), Some(name)) = (due, name) else { return Plan::default().tell(news).again(again) };
    // Also those that the status does not name: it may not have been written.
    let running: Vec<&Job> =
        context.jobs.iter().copied().filter(|job| finished(job.status.as_ref()).is_none()).collect();
    match spec.concurrency_policy.as_deref() {
        Some("Forbid") if !running.is_empty() => {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            news.push(context.teller().normal("JobAlreadyActive", message));
            return Plan::default().tell(news).again(again);
        }
        Some("Replace") => {
            if let Some(job) = running.iter().find(|job| job.metadata.deletion_timestamp.is_none()) {
                return context.delete(&[job]);
            }
        }
        _ => {}
    }
    let taken = ObjectKey { namespace: key.namespace.clone(), name: name.clone() };
    if world.jobs.get(&taken).is_some() {
        // A Job of another owner, or a finished one: this time has had its Job.
        return Plan::default().tell(news).again(again);
    }
    let Some(template) = world.template(Kind::CronJob, &cron_job.metadata) else {
        return Plan::one_by_one(vec![Action::read(Kind::CronJob, &cron_job.metadata)]).again(again);
    };
    Plan::one_by_one(vec![context.create(template, &name, due)]).tell(news).again(again)
}

/// State of a schedule.
#[derive(Default)]
struct Next {
    /// The time that is to have its Job now.
    due: Option<Timestamp>,
    again: Option<Duration>,
    told: Vec<Told>,
    /// Action to execute first.
    mends: Option<Action>,
}

impl Context<'_> {
    /// Removes a last time that is so far in the future that the clock must have been ahead once.
    fn forget(&self, last: Timestamp) -> Next {
        let message = format!(
            "lastScheduleTime {last} lies ahead of the clock ({}), which was ahead once: times count from now on",
            self.now
        );
        let patch = json!({"status": {"lastScheduleTime": self.now.to_string()}});
        let mends = Action::merge_status(Kind::CronJob, &self.cron_job.metadata, patch);
        Next { mends: Some(mends), ..self.tell("LastScheduleTimeAhead", message) }
    }

    /// Notes on the object that its schedule was changed, where a time before that would get a Job else.
    fn note_edit(&self, schedule: &Times) -> Option<Action> {
        let edited = self.cron_job.edited()?;
        let noted = schedule::noted_edit(self);
        let from = schedule::beginning(self, noted).filter(|from| *from < edited)?;
        let matters = schedule.next(from).is_some_and(|first| first <= edited);
        let patch = json!({"metadata": {"annotations": {EDITED: edited.to_string()}}});
        matters.then(|| Action::merge(Kind::CronJob, &self.cron_job.metadata, patch))
    }

    fn next(&self) -> Next {
        if self.cron_job.metadata.deletion_timestamp.is_some() {
            return Next::default();
        }
        let text = &self.spec.schedule;
        let zone = match self.zone() {
            Ok(zone) => zone,
            Err(error) => {
                let name = self.spec.time_zone.as_deref().unwrap_or_default();
                let message = format!("invalid timeZone: {name:?}: {error}");
                return self.tell("UnknownTimeZone", message);
            }
        };
        if self.spec.suspend == Some(true) {
            return Next::default();
        }
        let schedule = match Schedule::parse(text) {
            Ok(schedule) => Times { schedule, zone },
            Err(error) => {
                return self.tell("UnparseableSchedule", format!("unparseable schedule: {text:?} : {error}"));
            }
        };
        let wait = || Next { again: Some(CLOCK_CHECK), ..Next::default() };
        if !self.clock_is_known {
            return wait();
        }
        if let Some(last) = self.last().filter(|last| self.now < *last) {
            // A clock that was set back a little runs no time twice.
            let second = schedule.next(self.now).and_then(|first| schedule.next(first));
            let is_near = last.duration_since(self.now) <= SET_BACK || second.is_some_and(|second| last <= second);
            return if is_near { wait() } else { self.forget(last) };
        }
        if let Some(action) = self.note_edit(&schedule) {
            return Next { mends: Some(action), ..Next::default() };
        }
        let mut next = self.by_schedule(&schedule);
        if text.contains("TZ") {
            let message = format!(
                "CRON_TZ or TZ used in schedule {text:?} is not officially supported, see https://kubernetes.io/docs/concepts/\
                 workloads/controllers/cron-jobs/ for more details"
            );
            next.told.push(self.teller().warning("UnsupportedSchedule", message));
        }
        next
    }

    fn by_schedule(&self, schedule: &Times) -> Next {
        let recent = match schedule::most_recent(self, schedule, true) {
            Ok(recent) => recent,
            Err(error) => {
                return self.tell("InvalidSchedule", format!("invalid schedule: {} : {error}", self.spec.schedule));
            }
        };
        let mut next =
            Next { again: schedule::wait(self, schedule).map(|wait| wait.min(LONGEST_WAIT)), ..Next::default() };
        let Some(due) = recent.time else { return next };
        if recent.missed == Missed::Many {
            let message =
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            next.told.push(self.teller().warning("TooManyMissedTimes", message));
        }
        let late = Duration::try_from(self.now.duration_since(due)).unwrap_or_default();
        let deadline = self.spec.starting_deadline_seconds.map(|seconds| u64::try_from(seconds).unwrap_or_default());
        if deadline.is_some_and(|deadline| late > Duration::from_secs(deadline)) {
            let time = due.strftime("%a, %d %b %Y %H:%M:%S +0000");
            next.told
                .push(self.teller().warning("MissSchedule", format!("Missed scheduled time to start a job: {time}")));
            return next;
        }
        if self.last() != Some(due) {
            next.due = Some(due);
        }
        next
    }

    fn tell(&self, reason: &'static str, message: String) -> Next {
        Next { told: vec![self.teller().warning(reason, message)], ..Next::default() }
    }

    fn name(&self) -> &str {
        self.cron_job.metadata.name.as_deref().unwrap_or_default()
    }

    /// Name of the Job, always the same for a time, so that no time has two Jobs.
    fn job_name(&self, due: Timestamp) -> String {
        format!("{}-{}", self.name(), due.as_second().div_euclid(60))
    }

    fn create(&self, template: &Template, name: &str, due: Timestamp) -> Action {
        let meta = &self.cron_job.metadata;
        let mut annotations = template.metadata.annotations.clone().unwrap_or_default();
        let zone = self.zone().unwrap_or(TimeZone::UTC);
        annotations.insert(SCHEDULED.to_owned(), schedule::rfc3339(due, &zone));
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": name, "labels": template.metadata.labels, "annotations": annotations,
                "ownerReferences": [controller_reference(Kind::CronJob, meta)],
            },
        });
        let job = Body::sharing(job, &["spec"], &template.spec);
        Action {
            done: Some(self.teller().normal("SuccessfulCreate", "Created job {}")),
            failed: Some(self.teller().warning("FailedCreate", "Error creating job: {}")),
            ..Action::create(Kind::Job, meta.namespace.as_deref().unwrap_or_default(), job)
        }
    }

    fn delete(&self, jobs: &[&Job]) -> Plan {
        let action = |job: &&Job| Action {
            done: Some(self.teller().normal("SuccessfulDelete", "Deleted job {}")),
            failed: Some(self.teller().warning("FailedDelete", "Deleted job: {}")),
            ..Action::delete(Kind::Job, &job.metadata)
        };
        Plan::one_by_one(jobs.iter().map(action).collect())
    }
}
