//! The conditions of an autoscaler while it is decided about (K8s horizontal.go `setCondition`). Pure.

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerCondition as Condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub(crate) const ABLE_TO_SCALE: &str = "AbleToScale";
pub(crate) const SCALING_ACTIVE: &str = "ScalingActive";
pub(crate) const SCALING_LIMITED: &str = "ScalingLimited";
/// Condition of a Kubernetes that may scale to zero, which this controller does not.
const SCALED_TO_ZERO: &str = "ScaledToZero";

#[derive(Debug, Clone)]
pub(crate) struct Conditions {
    pub(crate) all: Vec<Condition>,
    clock: Timestamp,
}

impl Conditions {
    pub(crate) fn new(all: Vec<Condition>, clock: Timestamp) -> Self {
        Self { all, clock }
    }

    pub(crate) fn set(&mut self, kind: &str, holds: bool, reason: &str, message: impl Into<String>) {
        let status = if holds { "True" } else { "False" };
        let at = self.all.iter().position(|one| one.type_ == kind);
        let before = at.and_then(|at| self.all.get(at)).filter(|before| before.status == status);
        let since = before.map_or(Some(Time(self.clock)), |before| before.last_transition_time.clone());
        let condition = Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.into()),
            last_transition_time: since,
        };
        match at.and_then(|at| self.all.get_mut(at)) {
            Some(place) => *place = condition,
            None => self.all.push(condition),
        }
    }

    pub(crate) fn not_scaled_to_zero(&mut self) {
        self.all.retain(|one| one.type_ != SCALED_TO_ZERO);
    }
}
