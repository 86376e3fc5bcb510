//! The node's Lease: proof, for everybody who reads the API, that the node lives.
//!
//! Renewed only when a frame has arrived, never by a timer: a link that is dead renews nothing.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::requests::{Patch, Requests, Written};

/// How long a renewal counts (`nodeLeaseDurationSeconds` of the kubelet).
pub(super) const LEASE: Duration = Duration::from_secs(40);
/// Renewals are not closer than this, as a kubelet's.
pub(super) const RENEW: Duration = Duration::from_secs(10);

const NAMESPACE: &str = "kube-node-lease";

/// When to renew. Pure; times are of a monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    last: Option<Duration>,
    running: bool,
}

impl Renewal {
    /// A frame has arrived: whether to renew now. Each renewal must be ended by [`done`](Self::done).
    pub(super) fn due(&mut self, now: Duration) -> bool {
        let due = !self.running && self.last.is_none_or(|last| now.saturating_sub(last) >= RENEW);
        self.running |= due;
        due
    }

    /// The renewal has ended. After a failure the next frame tries again.
    pub(super) fn done(&mut self, now: Duration, renewed: bool) {
        self.running = false;
        if renewed {
            self.last = Some(now);
        }
    }
}

/// Renews the Lease of a node, creating it when it is not there.
pub(super) async fn renew(requests: &Requests, node: &str, now: Timestamp) -> kube::Result<()> {
    let list = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
    let spec = spec(node, now);
    match requests.patch(&format!("{list}/{node}"), Patch::Merge, &json!({"spec": spec})).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => return other.map(drop),
    }
    let mut metadata = json!({"name": node, "namespace": NAMESPACE});
    // With an owner the Lease goes when the Node goes.
    if let Ok(owner) = requests.get::<Written>(&format!("/api/v1/nodes/{node}")).await {
        metadata["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner.metadata.uid}]);
    }
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec,
    });
    match requests.create(&list, &lease).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => other.map(drop),
    }
}

fn spec(node: &str, now: Timestamp) -> Value {
    json!({
        "holderIdentity": node,
        "leaseDurationSeconds": LEASE.as_secs(),
        // MicroTime: six digits, always.
        "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_follow_frames_and_keep_their_distance() {
        let s = Duration::from_secs;
        let mut renewal = Renewal::default();
        assert!(renewal.due(s(0)));
        assert!(!renewal.due(s(1)), "one is under way");
        renewal.done(s(1), true);
        assert!(!renewal.due(s(10)));
        assert!(renewal.due(s(11)));
        renewal.done(s(12), false);
        assert!(renewal.due(s(12)), "a failure is tried again with the next frame");
    }

    #[test]
    fn the_time_is_a_micro_time() {
        let spec = spec("n", "2026-03-01T10:00:00Z".parse().unwrap());
        assert_eq!(spec["renewTime"], "2026-03-01T10:00:00.000000Z");
        assert_eq!(spec["leaseDurationSeconds"], 40);
    }
}
