//! Values and states on their way to the node.

use sampan_dmi::{
    DeviceStatus, Empty, ReportDeviceStatesRequest, ReportDeviceStatusRequest, Twin, TwinProperty, manager,
};
use tokio::time::Instant;
use tonic::Code;

use super::Device;
use crate::drivers::Driver;
use crate::edge::why;
use crate::plan::Id;
use crate::progress::Retry;

impl<D: Driver> Device<D> {
    /// All that is due, in one call.
    pub(super) async fn report(&mut self) {
        let now = Instant::now();
        if self.edge.at > now {
            return;
        }
        let (mut twins, mut due) = (Vec::new(), Vec::new());
        for (at, (property, progress)) in self.plan.properties.iter().zip(&self.progress).enumerate() {
            if !property.to_cloud || progress.report_at > now {
                continue;
            }
            let Some(reading) = &progress.reading else { continue };
            let value = |value: &str, at: String| {
                let kind = ("type".to_owned(), property.kind.name().to_owned());
                Some(TwinProperty { value: value.to_owned(), metadata: [kind, ("timestamp".to_owned(), at)].into() })
            };
            // Also sent if empty: KubeEdge's edge crashes if it is missing.
            let written = self.shared.written.get(&self.plan.id, &property.name).unwrap_or_default();
            twins.push(Twin {
                property_name: property.name.clone(),
                observed_desired: value(&written, String::new()),
                reported: value(&reading.text, reading.at.to_string()),
            });
            due.push(at);
        }
        if twins.is_empty() {
            return;
        }
        let Id { namespace, name } = self.plan.id.clone();
        let reported = DeviceStatus { twins, ..DeviceStatus::default() };
        let request = ReportDeviceStatusRequest {
            device_name: name,
            reported_device: Some(reported),
            device_namespace: namespace,
        };
        if self.tell(manager::REPORT_DEVICE_STATUS, request, "report").await {
            for at in due {
                if let (Some(property), Some(progress)) = (self.plan.properties.get(at), self.progress.get_mut(at)) {
                    progress.reported(property.report, now);
                }
            }
        }
    }

    /// When the state is reported next.
    pub(super) fn state_due(&self) -> Option<Instant> {
        let cycle = self.plan.state?;
        let state = self.health.state()?;
        if self.told != Some(state) {
            return Some(self.edge.at);
        }
        (!cycle.is_zero()).then_some(self.state_at)
    }

    pub(super) async fn report_state(&mut self) {
        let now = Instant::now();
        let (Some(cycle), Some(state), Some(due)) = (self.plan.state, self.health.state(), self.state_due()) else {
            return;
        };
        if due > now || self.edge.at > now {
            return;
        }
        let Id { namespace: device_namespace, name: device_name } = self.plan.id.clone();
        let request = ReportDeviceStatesRequest { device_name, device_namespace, state: state.name().to_owned() };
        if self.tell(manager::REPORT_DEVICE_STATES, request, "state").await {
            if self.told.replace(state) != Some(state) {
                log::info!("{} is {}", self.plan.id, state.name());
            }
            self.state_at = now + cycle;
        }
    }

    async fn tell<Q>(&mut self, path: &'static str, request: Q, what: &str) -> bool
    where
        Q: sampan_dmi::Message + Send + Sync + 'static,
    {
        match self.shared.edge.call::<Q, Empty>(path, request).await {
            Ok(Empty {}) => {
                self.edge = Retry::at(Instant::now());
                self.once.over(&self.plan.id, what);
                true
            }
            Err(status) => {
                self.edge.again(Instant::now());
                // An absent node is reported once for all devices, by the registration.
                if status.code() != Code::Unavailable {
                    self.once.warn(&self.plan.id, what, &why(&status));
                }
                false
            }
        }
    }
}
