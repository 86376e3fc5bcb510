//! Writes what a node reports of a device into its DeviceStatus, in the bridge's own name: no node may write one.
//!
//! One attempt per call. It creates the object if it is missing, and reads it again if another client has written it
//! meanwhile. The caller decides when to retry.

use std::sync::Arc;

use apimachinery::meta::rfc3339;
use edge_protocol::message::DeviceReport;
use jiff::Timestamp;
use kube::api::DynamicObject;
use sampan_json::SetField;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::status::{Plan, Speaker, plan};
use super::turns::Turns;
use super::view::Device;
use super::watch::DeviceWatch;
use crate::bridge::requests::{Patch, Requests, code, is_path_segment, is_refusal, words};
use crate::bridge::told::kinds::DEVICES_API;

/// Maximum number of writes and reads of one attempt.
const STEPS: usize = 8;

/// Writes for one node.
pub(in crate::bridge) struct Writer {
    /// The bridge's own.
    pub(in crate::bridge) requests: Requests,
    pub(in crate::bridge) devices: Arc<DeviceWatch>,
    pub(in crate::bridge) turns: Arc<Turns>,
    /// Limit of concurrent requests of all nodes to the API.
    pub(in crate::bridge) gate: Arc<Semaphore>,
    pub(in crate::bridge) node: String,
    /// Fencing number of the connection.
    pub(in crate::bridge) session: u64,
}

/// Result of a report.
#[derive(Debug, PartialEq)]
pub(in crate::bridge) enum Ended {
    /// The report, or a newer one, is in the API, except for the refused parts.
    Written(Vec<String>),
    /// It is refused permanently.
    Refused(String),
    /// The API did not answer, or is overloaded.
    Trouble(String),
    /// A temporary obstacle that should end soon.
    Obstacle(String),
}

impl Writer {
    /// Makes one attempt. The report may be a repetition of one that was written before.
    pub(in crate::bridge) async fn write(&self, report: &DeviceReport) -> Ended {
        match self.try_to_write(report).await {
            Ok(refused) => Ended::Written(refused),
            Err(ended) => ended,
        }
    }

    async fn try_to_write(&self, report: &DeviceReport) -> Result<Vec<String>, Ended> {
        let DeviceReport { namespace, name, .. } = report;
        if !is_path_segment(namespace) || !is_path_segment(name) {
            return Err(Ended::Refused("that is no name of a Device".to_owned()));
        }
        self.turns.look(&self.node).await;
        let (mut device, mut confirmed) = match self.devices.device(&(namespace.clone(), name.clone())) {
            (Some(device), _) if self.is_ours(&device, report) => (device, false),
            (_, false) => return Err(Ended::Trouble("Devices have not been read yet".to_owned())),
            // The watch may be late.
            _ => (self.confirm(report).await?, true),
        };
        let served = self.devices.served();
        if !served.statuses {
            self.devices.look_again();
            return Err(Ended::Obstacle("the API serves no DeviceStatus".to_owned()));
        }
        let list = format!("/apis/{DEVICES_API}/namespaces/{namespace}/devicestatuses");
        let path = format!("{list}/{name}");
        let status_path = if served.subresource { format!("{path}/status") } else { path.clone() };
        let now = rfc3339(Timestamp::now());
        let speaker = Speaker { node: &self.node, session: self.session, now: &now };
        let mut existing = self.read(&path).await?;
        // The status, which the creation of an object ignores, follows at once.
        let (mut patched, mut has_turn) = (false, false);
        for _ in 0..STEPS {
            let (plan, refused) = plan(existing.as_ref(), &device, report, speaker, confirmed);
            match plan {
                Plan::Nothing => return Ok(refused),
                Plan::Confirm => (device, confirmed) = (self.confirm(report).await?, true),
                Plan::Earlier => {
                    let why = "the DeviceStatus of an earlier Device of this name is still there";
                    return Err(Ended::Obstacle(why.to_owned()));
                }
                Plan::Create(object) => {
                    self.turns.write(&self.node).await;
                    has_turn = true;
                    existing = match self.turn(self.requests.post::<Value>(&list, &object)).await {
                        Err(error) if code(&error) == Some(409) => self.read(&path).await?,
                        made => Some(made.map_err(failed)?),
                    };
                }
                // The API accepted the patch without effect: it now serves statuses in another way.
                Plan::Patch { .. } if patched => {
                    self.devices.look_again();
                    return Err(Ended::Obstacle("the API takes no status at this place".to_owned()));
                }
                Plan::Patch { status, owner } => {
                    if !std::mem::take(&mut has_turn) {
                        self.turns.write(&self.node).await;
                    }
                    let written = self.patch(&status_path, &status).await?;
                    patched = written.is_some();
                    existing = match (written, owner) {
                        (Some(written), Some(mut owner)) => {
                            let version = written["metadata"]["resourceVersion"].clone();
                            owner.set_at(&["metadata", "resourceVersion"], version);
                            self.patch(&path, &owner).await?
                        }
                        (written, _) => written,
                    };
                    if existing.is_none() {
                        existing = self.read(&path).await?;
                        if existing.is_some() && served.subresource {
                            // The subresource may not exist any more.
                            self.devices.look_again();
                        }
                    }
                }
            }
        }
        Err(Ended::Obstacle("somebody else writes it all the time".to_owned()))
    }

    /// `None` on a conflict: the object was changed or deleted since it was read.
    async fn patch(&self, path: &str, body: &Value) -> Result<Option<Value>, Ended> {
        match self.turn(self.requests.patch_for::<Value>(path, Patch::Merge, body)).await {
            Ok(written) => Ok(Some(written)),
            Err(error) if matches!(code(&error), Some(404 | 409)) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    async fn read(&self, path: &str) -> Result<Option<Value>, Ended> {
        match self.turn(self.requests.get::<Value>(path)).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if code(&error) == Some(404) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// The Device as the API has it now, if it is this node's.
    async fn confirm(&self, report: &DeviceReport) -> Result<Device, Ended> {
        let DeviceReport { namespace, name, .. } = report;
        let path = format!("/apis/{DEVICES_API}/namespaces/{namespace}/devices/{name}");
        let found = match self.turn(self.requests.get::<DynamicObject>(&path)).await {
            Err(error) if code(&error) == Some(404) => {
                return Err(Ended::Refused("there is no such Device".to_owned()));
            }
            found => Device::of(&found.map_err(failed)?),
        };
        let refused = || Ended::Refused(format!("no Device of this name and uid is of node {}", self.node));
        found.filter(|device| self.is_ours(device, report)).ok_or_else(refused)
    }

    fn is_ours(&self, device: &Device, report: &DeviceReport) -> bool {
        *device.node == *self.node && *device.uid == *report.uid
    }

    async fn turn<T>(&self, request: impl Future<Output = T>) -> T {
        // The semaphore is never closed: it lives as long as the bridge.
        let _turn = self.gate.acquire().await;
        request.await
    }
}

/// Classifies an error of the API for a report.
fn failed(error: kube::Error) -> Ended {
    let why = words(&error);
    match code(&error) {
        // 403: a missing right or a policy, which an administrator may fix; 404: the namespace or the definition is
        // missing; 500: perhaps only this object fails (too large for etcd, a failing webhook), so others must not
        // wait for it.
        Some(403 | 404 | 500) => Ended::Obstacle(why),
        _ if is_refusal(&error) => Ended::Refused(why),
        _ => Ended::Trouble(why),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn what_may_pass_is_no_refusal() {
        let of = |code| failed(kube::Error::Api(Box::new(Status::failure("m", "r").with_code(code))));
        for code in [401, 408, 429, 502, 503, 504] {
            assert!(matches!(of(code), Ended::Trouble(_)), "{code}");
        }
        for code in [403, 404, 500] {
            assert!(matches!(of(code), Ended::Obstacle(_)), "{code}");
        }
        for code in [400, 409, 413, 422] {
            assert!(matches!(of(code), Ended::Refused(_)), "{code}");
        }
        let broken = kube::Error::SerdeError(serde_json::from_str::<u8>("x").unwrap_err());
        assert!(matches!(failed(broken), Ended::Trouble(_)), "nonsense in an answer proves nothing");
    }
}
