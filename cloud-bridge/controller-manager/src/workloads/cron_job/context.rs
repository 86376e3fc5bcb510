//! A CronJob with its Jobs, as input of all parts of a plan.

use std::sync::LazyLock;

use apimachinery::cron::zone;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::{CronJobSpec, CronJobStatus};

use crate::workloads::batch::{CronJob, Job};
use crate::workloads::plan::Teller;
use crate::workloads::world::Kind;

const COMPONENT: &str = "cronjob-controller";

/// The zone of schedules that name none: that of the host.
static LOCAL: LazyLock<TimeZone> = LazyLock::new(TimeZone::system);

/// A CronJob, and the input of its plan.
pub(super) struct Context<'a> {
    pub(super) cron_job: &'a CronJob,
    pub(super) spec: &'a CronJobSpec,
    pub(super) status: CronJobStatus,
    pub(super) jobs: Vec<&'a Job>,
    /// Wall clock, in whole seconds.
    pub(super) now: Timestamp,
    /// Whether the clock can be right.
    pub(super) clock_is_known: bool,
}

impl Context<'_> {
    pub(super) fn teller(&self) -> Teller {
        Teller::new(COMPONENT, Kind::CronJob, &self.cron_job.metadata)
    }

    /// The zone of the schedule, or why it cannot be loaded.
    pub(super) fn zone(&self) -> Result<TimeZone, String> {
        self.spec.time_zone.as_deref().map_or_else(|| Ok(LOCAL.clone()), zone::load)
    }

    pub(super) fn is_policy(&self, policy: &str) -> bool {
        self.spec.concurrency_policy.as_deref() == Some(policy)
    }

    pub(super) fn last(&self) -> Option<Timestamp> {
        self.status.last_schedule_time.as_ref().map(|time| time.0)
    }
}
