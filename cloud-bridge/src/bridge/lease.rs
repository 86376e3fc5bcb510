//! The node's Lease, which shows every client of the API that the node is alive.
//!
//! It is renewed only for a frame that has arrived, once, and within five seconds of it: a dead link renews nothing.
//! Its time is that of the frame.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::requests::{Patch, Requests, Written};

/// Validity of a renewal (`nodeLeaseDurationSeconds` of the kubelet).
pub(super) const LEASE: Duration = Duration::from_secs(40);
/// Minimum interval of renewals, as a kubelet's.
pub(super) const RENEW: Duration = Duration::from_secs(10);

const NAMESPACE: &str = "kube-node-lease";

/// A frame that arrived too soon after a renewal is counted after this time at the latest.
const SOON: Duration = Duration::from_secs(5);
/// Pause before a failed renewal is repeated.
const AGAIN: Duration = Duration::from_secs(2);

/// Decides when to renew. Pure; times are of a monotonic clock.
///
/// A frame that arrives too soon after a renewal is counted a little later. So the Lease of a node that falls silent
/// has the time of its last frame.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    last: Option<Duration>,
    /// The newest frame without a renewal.
    heard: Option<Duration>,
    not_before: Duration,
    running: bool,
}

impl Renewal {
    /// Handles the arrival of a frame: returns whether to renew now. Each renewal must be ended by
    /// [`done`](Self::done).
    pub(super) fn due(&mut self, now: Duration) -> bool {
        self.heard = Some(now);
        self.late(now).is_some()
    }

    /// Handles the passage of time: returns how long ago an earlier frame arrived, if it needs a renewal now.
    pub(super) fn late(&mut self, now: Duration) -> Option<Duration> {
        if self.deadline()? > now {
            return None;
        }
        self.running = true;
        self.heard.take().map(|heard| now.saturating_sub(heard))
    }

    /// When to call [`late`](Self::late).
    pub(super) fn deadline(&self) -> Option<Duration> {
        let heard = self.heard.filter(|_| !self.running)?;
        let apart = self.last.map_or(Duration::ZERO, |last| (last + RENEW).min(heard + SOON));
        Some(apart.max(self.not_before))
    }

    /// Same as [`due`](Self::due), but only before the first renewal.
    pub(super) fn first_due(&mut self, now: Duration) -> bool {
        self.last.is_none() && self.due(now)
    }

    /// Ends the renewal for a frame of `heard`. A failed one is repeated soon, while that frame is recent enough.
    pub(super) fn done(&mut self, now: Duration, heard: Duration, renewed: bool) {
        self.running = false;
        if renewed {
            self.last = Some(now);
        } else if self.heard.is_none() && now.saturating_sub(heard) < RENEW {
            self.heard = Some(heard);
            self.not_before = now + AGAIN;
        }
    }
}

/// Renews the Lease of a node, or creates it. It is owned by the Node, so that it is deleted with it: it is not created
/// before the Node, and one without an owner gets it (K8s component-helpers/apimachinery/lease).
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

/// The reference to the Node; an error if it does not exist, and the next frame retries.
async fn owner(requests: &Requests, node: &str) -> kube::Result<Value> {
    let owner: Written = requests.get(&format!("/api/v1/nodes/{node}")).await?;
    Ok(json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner.metadata.uid}))
}

/// MicroTime: always six digits.
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
    fn g16_renewals_follow_frames_and_keep_their_distance() {
        let s = Duration::from_secs;
        let mut renewal = Renewal::default();
        assert!(renewal.first_due(s(0)));
        assert!(!renewal.due(s(0)), "one is under way");
        renewal.heard = None;
        renewal.done(s(1), s(0), true);
        assert_eq!(renewal.deadline(), None, "nothing was heard: nothing is renewed");
        assert!(!renewal.due(s(9)));
        assert_eq!(renewal.deadline(), Some(s(11)));
        assert_eq!(renewal.late(s(11)), Some(s(2)), "it counts later, for when it came");
        renewal.done(s(12), s(9), true);
        assert!(!renewal.due(s(13)));
        assert_eq!(renewal.deadline(), Some(s(18)), "a last word is not long in coming");
        assert!(renewal.due(s(22)), "of many, one in ten seconds counts");
    }

    #[test]
    fn a_failure_is_tried_again_while_the_frame_proves_something() {
        let s = Duration::from_secs;
        let mut renewal = Renewal::default();
        assert!(renewal.first_due(s(0)));
        renewal.done(s(1), s(0), false);
        assert_eq!(renewal.deadline(), Some(s(3)));
        assert_eq!(renewal.late(s(3)), Some(s(3)));
        renewal.done(s(30), s(0), false);
        assert_eq!(renewal.deadline(), None, "too long ago");
    }

    #[test]
    fn the_time_is_a_micro_time() {
        let spec = spec("n", "2026-03-01T10:00:00Z".parse().unwrap());
        assert_eq!(spec["renewTime"], "2026-03-01T10:00:00.000000Z");
        assert_eq!(spec["leaseDurationSeconds"], 40);
    }
}
