//! Jobs and CronJobs as stored here: without their templates, and with the times that this program saw by its monotonic
//! clock.

use std::ops::{Deref, DerefMut};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::annotations;
use super::now::{Now, Sight};
use super::store::Cached;
use super::templated;

/// Conditions that end a Job.
pub(super) const COMPLETE: &str = "Complete";
pub(super) const FAILED: &str = "Failed";

/// The condition by which a Job is over, if it is.
pub(super) fn finished(status: Option<&batch::JobStatus>) -> Option<&batch::JobCondition> {
    let mut conditions = status?.conditions.iter().flatten();
    conditions.find(|one| matches!(one.type_.as_str(), COMPLETE | FAILED) && one.status == "True")
}

/// A Job, and since when it is active and over.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "batch::Job")]
pub(crate) struct Job {
    object: batch::Job,
    started: Option<(Timestamp, Sight)>,
    ended: Option<(Timestamp, Sight)>,
}

/// A CronJob, and when this program saw that its schedule was changed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "batch::CronJob")]
pub(crate) struct CronJob {
    object: batch::CronJob,
    edited: Option<Timestamp>,
}

macro_rules! kept {
    ($kept:ident, $strip:expr, $($unseen:ident),*) => {
        apimachinery::read_as!($kept, batch::$kept);

        impl From<batch::$kept> for $kept {
            fn from(mut object: batch::$kept) -> Self {
                let strip: fn(&mut batch::$kept) = $strip;
                strip(&mut object);
                Self { object, $($unseen: None),* }
            }
        }

        impl Deref for $kept {
            type Target = batch::$kept;

            fn deref(&self) -> &batch::$kept {
                &self.object
            }
        }

        impl DerefMut for $kept {
            fn deref_mut(&mut self) -> &mut batch::$kept {
                &mut self.object
            }
        }
    };
}

kept!(Job, without_template, started, ended);
kept!(CronJob, without_job_template, edited);

fn without_job_template(cron_job: &mut batch::CronJob) {
    annotations::keep(&mut cron_job.metadata, &[annotations::EDITED]);
    cron_job.spec.job_template = batch::JobTemplateSpec::default();
}

fn without_template(job: &mut batch::Job) {
    annotations::keep(&mut job.metadata, &[]);
    if let Some(spec) = &mut job.spec {
        drop(templated::take(&mut spec.template));
    }
}

impl Job {
    /// Since when it is active, if it is.
    pub(super) fn started(&self) -> Option<Sight> {
        self.started.map(|(_, sight)| sight)
    }

    /// Since when it is over, if it is.
    pub(super) fn ended(&self) -> Option<Sight> {
        self.ended.map(|(_, sight)| sight)
    }
}

impl CronJob {
    /// When its schedule was changed, as far as this program saw it.
    pub(super) fn edited(&self) -> Option<Timestamp> {
        self.edited
    }
}

impl Cached for Job {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn seen(&mut self, before: Option<&Self>, now: Now) {
        let sight = |told: Option<Timestamp>, known: Option<(Timestamp, Sight)>| {
            told.map(|told| known.filter(|(known, _)| *known == told).unwrap_or_else(|| (told, now.sight(told))))
        };
        let start = self.status.as_ref().and_then(|status| Some(status.start_time.as_ref()?.0));
        let end = finished(self.status.as_ref()).and_then(|end| Some(end.last_transition_time.as_ref()?.0));
        self.started = sight(start, before.and_then(|before| before.started));
        self.ended = sight(end, before.and_then(|before| before.ended));
    }
}

impl Cached for CronJob {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn seen(&mut self, before: Option<&Self>, now: Now) {
        let same =
            |before: &Self| before.spec.schedule == self.spec.schedule && before.spec.time_zone == self.spec.time_zone;
        self.edited = before.and_then(|before| if same(before) { before.edited } else { Some(now.clock) });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn now(passed: u64, clock: &str) -> Now {
        Now { passed: Duration::from_secs(passed), clock: clock.parse().unwrap() }
    }

    fn job(start: &str) -> Job {
        serde_json::from_value(json!({"metadata": {"uid": "u"}, "status": {"startTime": start}})).unwrap()
    }

    #[test]
    fn jobs_are_kept_without_their_containers() {
        let containers = json!([{"name": "c", "image": "i"}]);
        let job = json!({"selector": {}, "template": {"spec": {"restartPolicy": "Never", "containers": containers}}});
        let cron_job: CronJob = serde_json::from_value(
            json!({"metadata": {}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job}}}),
        )
        .unwrap();
        assert_eq!((cron_job.spec.schedule.as_str(), &cron_job.spec.job_template.spec), ("* * * * *", &None));
        let job: Job = serde_json::from_value(json!({"metadata": {}, "spec": job})).unwrap();
        let kept = job.spec.as_ref().unwrap().template.spec.clone().unwrap();
        assert_eq!((kept.restart_policy.as_deref(), kept.containers.len()), (Some("Never"), 0));
    }

    #[test]
    fn job_age_follows_no_step_of_the_clock() {
        let age = |job: &Job, now: Now| now.age(job.started().unwrap()).as_secs();
        // Started in 1970; then the clock is set.
        let mut first = job("1970-01-01T00:01:00Z");
        first.seen(None, now(60, "1970-01-01T00:01:00Z"));
        let mut second = job("1970-01-01T00:01:00Z");
        second.seen(Some(&first), now(70, "2026-05-05T10:00:00Z"));
        assert_eq!(age(&second, now(90, "2026-05-05T10:00:20Z")), 30);
        // The program begins again.
        let mut again = job("1970-01-01T00:01:00Z");
        again.seen(None, now(5, "2026-05-05T10:01:00Z"));
        assert_eq!(age(&again, now(15, "2026-05-05T10:01:10Z")), 10, "a start before 2024 is none");
        let mut usual = job("2026-05-05T10:00:00Z");
        usual.seen(None, now(5, "2026-05-05T10:01:00Z"));
        assert_eq!(age(&usual, now(15, "2026-05-05T10:01:10Z")), 70);
        assert_eq!(age(&usual, now(15, "1970-01-01T00:00:00Z")), 70);
        let mut future = job("2036-05-05T10:00:00Z");
        future.seen(None, now(5, "2026-05-05T10:01:00Z"));
        assert_eq!(age(&future, now(15, "2026-05-05T10:01:10Z")), 10);
    }
}
