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

    /// As [`due`](Self::due), but only while there has been no renewal at all.
    pub(super) fn first_due(&mut self) -> bool {
        self.last.is_none() && self.due(Duration::ZERO)
    }

    /// The renewal has ended. After a failure the next frame tries again.
    pub(super) fn done(&mut self, now: Duration, renewed: bool) {
        self.running = false;
        if renewed {
            self.last = Some(now);
        }
    }
}

/// Renews the Lease of a node, creating it when it is not there. It belongs to the Node, so that it goes with it: it
/// is not created before the Node, and one without an owner is given it (K8s component-helpers/apimachinery/lease).
pub(super) async fn renew(requests: &Requests, node: &str, now: Timestamp) -> kube::Result<()> {
    let list = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
    let spec = spec(node, now);
    match requests.patch(&format!("{list}/{node}"), Patch::Merge, &json!({"spec": spec})).await {
        Ok(lease) if lease.metadata.owner_references.is_empty() => {
            let metadata = json!({"ownerReferences": [owner(requests, node).await?]});
            return requests
                .patch(&format!("{list}/{node}"), Patch::Merge, &json!({"metadata": metadata}))
                .await
                .map(drop);
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => return other.map(drop),
    }
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node, "namespace": NAMESPACE, "ownerReferences": [owner(requests, node).await?]},
        "spec": spec,
    });
    match requests.create(&list, &lease).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => other.map(drop),
    }
}

/// The reference to the Node; an error while there is none, and the next frame tries again.
async fn owner(requests: &Requests, node: &str) -> kube::Result<Value> {
    let owner: Written = requests.get(&format!("/api/v1/nodes/{node}")).await?;
    Ok(json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner.metadata.uid}))
}

/// MicroTime: six digits, always.
pub(super) fn micro_time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

fn spec(node: &str, now: Timestamp) -> Value {
    json!({
        "holderIdentity": node,
        "leaseDurationSeconds": LEASE.as_secs(),
        "renewTime": micro_time(now),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_follow_frames_and_keep_their_distance() {
        let s = Duration::from_secs;
        let mut renewal = Renewal::default();
        assert!(renewal.first_due());
        assert!(!renewal.due(s(0)), "one is under way");
        assert!(!renewal.due(s(1)), "one is under way");
        renewal.done(s(1), true);
        assert!(!renewal.due(s(10)));
        assert!(renewal.due(s(11)));
        renewal.done(s(12), false);
        assert!(!renewal.first_due());
        assert!(renewal.due(s(12)), "a failure is tried again with the next frame");
    }

    #[test]
    fn the_time_is_a_micro_time() {
        let spec = spec("n", "2026-03-01T10:00:00Z".parse().unwrap());
        assert_eq!(spec["renewTime"], "2026-03-01T10:00:00.000000Z");
        assert_eq!(spec["leaseDurationSeconds"], 40);
    }
}
