//! A Deployment and its ReplicaSets, as input of all steps of a plan.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DeploymentSpec, DeploymentStatus};

use super::sets::Sets;
use crate::workloads::plan::{Action, Plan, Teller};
use crate::workloads::templated::Deployment;
use crate::workloads::world::Kind;

const COMPONENT: &str = "deployment-controller";

/// A Deployment, and the input of its plan.
pub(super) struct Context<'a> {
    pub(super) deployment: &'a Deployment,
    pub(super) spec: &'a DeploymentSpec,
    pub(super) status: DeploymentStatus,
    pub(super) sets: Sets<'a>,
    pub(super) now: Timestamp,
}

impl<'a> Context<'a> {
    pub(super) fn write_status(&self, status: DeploymentStatus) -> Plan {
        let action = Action::status(Kind::Deployment, &self.deployment.metadata, &self.status, &status);
        Plan::one_by_one(action.into_iter().collect())
    }

    pub(super) fn name(&self) -> &'a str {
        self.deployment.metadata.name.as_deref().unwrap_or_default()
    }

    /// The desired number of pods; 1 by default.
    pub(super) fn replicas(&self) -> i64 {
        self.spec.replicas.unwrap_or(1).into()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.spec.paused == Some(true)
    }

    pub(super) fn is_rolling(&self) -> bool {
        let strategy = self.spec.strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
        strategy.unwrap_or("RollingUpdate") == "RollingUpdate"
    }

    pub(super) fn teller(&self) -> Teller {
        Teller::new(COMPONENT, Kind::Deployment, &self.deployment.metadata)
    }

    /// How long it may go without progress, if that is bounded.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let seconds = self.spec.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)?;
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
    }
}
