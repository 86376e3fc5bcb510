//! Admission of nodes: a node may connect while its Node object exists and does not forbid it.
//!
//! Joining creates the object; deleting it revokes the node permanently: only a new token admits it again. Pure, except
//! the request about a node that the watch does not show yet. Also stores where its bridge accepts requests of other bridges.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};

use super::requests::{Patch, Requests, is_path_segment};
use super::well_known::{BRIDGED_LABEL, HARDWARE, REPLICA_ANNOTATION, RULES_ANNOTATION, TRUST_ANNOTATION};
use crate::pki::clock;

/// Set by a join: certificates of the node that were issued before are void.
pub const ISSUED_FROM: &str = "sampan.dev/certificates-from";
/// Set by an administrator: whatever it says but `false` keeps the node out. A join takes it away.
pub const REVOKED: &str = "sampan.dev/revoked";

/// Bytes of an annotation that is kept: an address, or the mark of a rotation.
const LONGEST: usize = 128;

/// Why a node is not let in. The texts are for the person at the node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    #[error("node {0} is not, or no longer, part of this cluster: join again with a fresh token")]
    Absent(String),
    #[error("node {0} was revoked (annotation {REVOKED} of its Node): join again with a fresh token")]
    Revoked(String),
    #[error(
        "this certificate of node {0} was issued before the node joined again: another device may have its place; join again with a fresh token"
    )]
    Replaced(String),
    /// Not refused, but unknown: another attempt may help.
    #[error("whether node {node} is part of this cluster is not known: {problem}")]
    Unknown { node: String, problem: String },
}

/// Whether these metadata of a Node say that it was revoked.
pub(crate) fn is_revoked(metadata: &ObjectMeta) -> bool {
    metadata.annotations.as_ref().and_then(|all| all.get(REVOKED)).is_some_and(|text| text != "false")
}

/// What a Node object says of its node's right to connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    revoked: bool,
    from: Option<SystemTime>,
    /// Where its bridge takes requests for rules.
    rules_at: Option<Box<str>>,
    /// Value of [`TRUST_ANNOTATION`].
    trust: Option<Box<str>>,
    /// Where its bridge takes kubelet requests of other bridges.
    replica_at: Option<Box<str>>,
}

impl Access {
    pub(super) fn of(metadata: &ObjectMeta) -> Self {
        let annotation = |name: &str| metadata.annotations.as_ref().and_then(|all| all.get(name));
        let from = annotation(ISSUED_FROM).and_then(|text| text.parse::<Timestamp>().ok()).map(SystemTime::from);
        // Kept for each node; an annotation may have 256 KiB.
        let text = |name: &str| annotation(name).filter(|text| text.len() <= LONGEST).map(|text| text.as_str().into());
        Self {
            revoked: is_revoked(metadata),
            from,
            rules_at: text(RULES_ANNOTATION),
            trust: text(TRUST_ANNOTATION),
            replica_at: text(REPLICA_ANNOTATION),
        }
    }

    /// Whether a certificate issued then is good.
    pub(super) fn admits(&self, node: &str, issued: SystemTime) -> Result<(), NotAdmitted> {
        if self.revoked {
            return Err(NotAdmitted::Revoked(node.to_owned()));
        }
        if self.from.is_some_and(|from| issued < from) {
            return Err(NotAdmitted::Replaced(node.to_owned()));
        }
        Ok(())
    }
}

/// What the watch of Node objects has shown.
#[derive(Debug, Default)]
pub(super) struct NodeAccess {
    known: Mutex<HashMap<String, Access>>,
}

#[derive(Deserialize)]
struct Named {
    metadata: ObjectMeta,
}

impl NodeAccess {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Access>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, node: &str, access: Access) {
        let mut known = self.known();
        // Most changes of a Node are heartbeats: no new text for them.
        match known.get_mut(node) {
            Some(held) => *held = access,
            None => drop(known.insert(node.to_owned(), access)),
        }
    }

    /// Where the bridge of this node takes requests for rules, if it says so.
    pub(super) fn rules_at(&self, node: &str) -> Option<String> {
        self.known().get(node)?.rules_at.as_deref().map(str::to_owned)
    }

    /// Whether the Node has this mark of the authorities that it trusts.
    pub(super) fn has_trust(&self, node: &str, mark: &str) -> bool {
        self.known().get(node).is_some_and(|known| known.trust.as_deref() == Some(mark))
    }

    /// Where the bridge of this node takes kubelet requests of other bridges, if it says so.
    pub(super) fn replica_at(&self, node: &str) -> Option<String> {
        self.known().get(node)?.replica_at.as_deref().map(str::to_owned)
    }

    pub(super) fn remove(&self, node: &str) {
        self.known().remove(node);
    }

    /// All that are known, for comparing with a fresh list.
    pub(super) fn names(&self) -> Vec<String> {
        self.known().keys().cloned().collect()
    }

    pub(super) fn has(&self, node: &str) -> bool {
        self.known().contains_key(node)
    }

    pub(super) fn count(&self) -> usize {
        self.known().len()
    }

    /// Whether a certificate of this node, issued then, is good; asks the API about a node that the watch does not
    /// know (yet).
    pub(super) async fn admit(&self, client: &Client, node: &str, issued: SystemTime) -> Result<(), NotAdmitted> {
        let known = self.known().get(node).cloned();
        let access = match known {
            Some(known) => known,
            None => look_up(client, node).await?.ok_or_else(|| NotAdmitted::Absent(node.to_owned()))?,
        };
        access.admits(node, issued)
    }
}

/// The API's present answer about a node; `None` if it does not exist.
pub(super) async fn look_up(client: &Client, node: &str) -> Result<Option<Access>, NotAdmitted> {
    let unknown = |problem: String| NotAdmitted::Unknown { node: node.to_owned(), problem };
    if !is_path_segment(node) {
        return Err(unknown("its name is none".to_owned()));
    }
    match Requests::new(client.clone()).get::<Named>(&format!("/api/v1/nodes/{node}")).await {
        Ok(named) => Ok(Some(Access::of(&named.metadata))),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(unknown(error.to_string())),
    }
}

/// Writes on a Node which authorities its node trusts.
pub(super) async fn record_trust(own: &Client, node: &str, mark: &str) -> kube::Result<()> {
    let patch = json!({"metadata": {"annotations": {TRUST_ANNOTATION: mark}}});
    match Requests::new(own.clone()).patch(&format!("/api/v1/nodes/{node}"), Patch::Merge, &patch).await {
        // It was deleted; a node that registers again shows its certificate again.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}

/// Clocks of bridges over one API may differ by so much.
const SKEW: SignedDuration = SignedDuration::from_secs(2);

/// Makes a node part of the cluster: only certificates issued from the time that is returned are good, and no earlier
/// word against it counts any more. `as_node` may create the node's own object, `own` may change it. `hardware` is that of a
/// board that has enrolled; otherwise the name belongs to no board from now on.
///
/// The time is written twice. A renewal is signed first and then looked up in the API: one whose look-up was before the
/// first time was signed before the second, and one whose look-up was after it is refused.
pub(super) async fn welcome(
    own: Client,
    as_node: Client,
    node: &str,
    hardware: Option<&str>,
    replicated: bool,
) -> kube::Result<Timestamp> {
    let path = format!("/api/v1/nodes/{node}");
    // The clock may have been ahead at the last join, and what was issued then must be void, too.
    let known = look_up(&own, node).await.ok().flatten().and_then(|known| known.from);
    let now = || after(known, clock::now());
    let write = async |metadata: Value| {
        Requests::new(own.clone()).patch(&path, Patch::Merge, &json!({ "metadata": metadata })).await.map(drop)
    };
    match write(json!({"annotations": {ISSUED_FROM: now().to_string()}})).await {
        // No node, no renewal.
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => other?,
    }
    let from = if replicated { now().saturating_add(SKEW).unwrap_or(Timestamp::MAX) } else { now() };
    let labels = json!({BRIDGED_LABEL: "true"});
    let mut annotations = json!({ISSUED_FROM: from.to_string()});
    let changes = json!({ISSUED_FROM: from.to_string(), REVOKED: Value::Null, HARDWARE: hardware});
    let metadata = json!({"labels": labels, "annotations": changes});
    match write(metadata.clone()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => return other.map(|()| from),
    }
    if let Some(hardware) = hardware {
        annotations[HARDWARE] = hardware.into();
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node, "labels": labels, "annotations": annotations},
    });
    match Requests::new(as_node).create("/api/v1/nodes", &object).await {
        // Another client created it in between.
        Err(kube::Error::Api(status)) if status.is_already_exists() => write(metadata).await?,
        other => drop(other?),
    }
    Ok(from)
}

/// Now, but after the last time that was set. As exact as the time in a certificate.
fn after(last: Option<SystemTime>, now: SystemTime) -> Timestamp {
    let last = last.and_then(|last| last.checked_add(Duration::from_millis(1)));
    let millis = last.map_or(now, |last| last.max(now)).duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok()).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(annotations: &[(&str, &str)]) -> Access {
        let annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Access::of(&ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() })
    }

    #[test]
    fn g28_a_join_voids_what_was_issued_by_a_clock_that_was_ahead() {
        let at = |millis| UNIX_EPOCH + Duration::from_millis(millis);
        assert_eq!(after(None, at(5)), Timestamp::from_millisecond(5).unwrap());
        assert_eq!(after(Some(at(4)), at(5)), Timestamp::from_millisecond(5).unwrap());
        assert_eq!(after(Some(at(9)), at(5)), Timestamp::from_millisecond(10).unwrap());
        assert_eq!(after(Some(at(u64::MAX / 4)), at(5)), Timestamp::MAX, "no panic");
    }

    #[test]
    fn long_address_of_a_bridge_is_not_kept() {
        let at = |text: &str| access(&[(REPLICA_ANNOTATION, text)]).replica_at;
        let longest = "[2001:db8:1111:2222:3333:4444:5555:6666%4294967295]:65535";
        assert_eq!(at(longest).as_deref(), Some(longest));
        assert_eq!(at(&"1".repeat(LONGEST + 1)), None);
    }

    #[test]
    fn g28_an_annotation_or_a_later_join_voids_a_certificate() {
        let issued = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap().to_string();
        assert_eq!(access(&[]).admits("n", issued), Ok(()));
        assert_eq!(access(&[(ISSUED_FROM, &at(0))]).admits("n", issued), Ok(()), "the join's own certificate");
        assert!(matches!(access(&[(ISSUED_FROM, &at(1))]).admits("n", issued), Err(NotAdmitted::Replaced(_))));
        assert!(matches!(access(&[(REVOKED, "true")]).admits("n", issued), Err(NotAdmitted::Revoked(_))));
        assert!(matches!(access(&[(REVOKED, "")]).admits("n", issued), Err(NotAdmitted::Revoked(_))));
        assert_eq!(access(&[(REVOKED, "false"), (ISSUED_FROM, "nonsense")]).admits("n", issued), Ok(()));
    }
}
