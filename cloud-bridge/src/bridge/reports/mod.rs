//! Writes what a node reports into the API, in the node's own name.
//!
//! Each call makes one attempt. `work_queue` is responsible for order and retries.

mod authority;
mod correlator;
mod event;
mod fence;
mod labels;
mod mirror;
mod news;
mod node;
mod pod;
mod shape;

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use edge_protocol::message::{ObjectKey, Report};
use jiff::Timestamp;
use kube::core::response::StatusCause;
use sampan_log::printable::printable;
use serde_json::Value;

pub(super) use event::refusal_event;
pub use node::{AddressType, KubeletEndpoint, NodeOverrides};

use super::node::Node;
use super::pod_ranges::PodRanges;
use super::requests::{Requests, code};
use super::well_known::SESSION_ANNOTATION;
use super::work_queue::Outcome;

/// Writes the reports of one node.
pub(super) struct Reports {
    node: Arc<Node>,
    requests: Requests,
    /// The bridge's own identity, for the few writes that a node is not allowed to make.
    own: Requests,
    overrides: NodeOverrides,
    events: Mutex<correlator::Correlator>,
    /// Fencing number of the connection.
    session: u64,
    /// Whether other bridges may also write for the node.
    pub(super) replicated: bool,
    /// Namespaces in which the node may have mirror pods; empty: all.
    pub(super) mirror_namespaces: Arc<[String]>,
    /// The ranges of pod addresses of each node.
    pub(super) pod_ranges: Arc<PodRanges>,
    /// Address from which the node connected; set only for a node that asks for routes.
    pub(super) lan: OnceLock<IpAddr>,
    /// Place of the node according to the API: its addresses on its LAN, and the address from which it connected.
    place: Mutex<Option<(String, String)>>,
    /// Whether the API has the fencing number of this connection.
    claimed: AtomicBool,
    /// Whether the Node has the address at which requests for rules are accepted.
    rules_said: AtomicBool,
    /// Hash of the labels and annotations that this connection wrote last.
    metadata: Mutex<Option<u64>>,
    /// The node's object as last reported, as text: parsed, it takes six times the memory, for every idle node.
    newest_node: Mutex<Option<Box<str>>>,
    /// Held while the node's object is written: a write of it again must not land after a newer report.
    node_turn: tokio::sync::Mutex<()>,
    /// Mirrors that this connection has created, by namespace and name. The watch may not have shown them yet.
    mirrors: Mutex<HashSet<String>>,
    /// Pods about which this connection has reported, the oldest first. Events about them may arrive after their end.
    told_of: Mutex<VecDeque<ObjectKey>>,
}

impl Reports {
    pub(super) fn new(
        node: Arc<Node>,
        session: u64,
        requests: Requests,
        own: Requests,
        overrides: NodeOverrides,
    ) -> Self {
        Self {
            node,
            session,
            replicated: false,
            mirror_namespaces: Arc::default(),
            pod_ranges: Arc::default(),
            lan: OnceLock::new(),
            place: Mutex::default(),
            claimed: AtomicBool::new(false),
            rules_said: AtomicBool::new(false),
            requests,
            own,
            overrides,
            events: Mutex::default(),
            metadata: Mutex::default(),
            newest_node: Mutex::default(),
            node_turn: tokio::sync::Mutex::default(),
            mirrors: Mutex::default(),
            told_of: Mutex::default(),
        }
    }

    /// Makes one attempt. The report may be a repetition of one that was written before.
    pub(super) async fn write(&self, report: &Report) -> Outcome {
        if let Err(problem) = shape::check(report) {
            return Outcome::Refused(problem);
        }
        if let Err(failure) = self.authorize(report).await {
            return outcome(Err(failure));
        }
        let written = match report {
            Report::PodStatus { namespace, name, uid, status } => {
                let status = self.with_own_addresses(namespace, name, status);
                if self.replicated {
                    self.fenced_status(namespace, name, uid, &status).await
                } else {
                    pod::status(&self.requests, None, namespace, name, uid, &status).await
                }
            }
            Report::PodGone { namespace, name, uid } => pod::gone(&self.requests, namespace, name, uid).await,
            Report::Node { node } => {
                let _turn = self.node_turn.lock().await;
                self.write_node(node).await
            }
            Report::Event { event } => self.write_event(event).await,
            Report::MirrorPod { pod } => self.mirror(pod).await,
            Report::MirrorGone { namespace, name, static_uid } => self.mirror_gone(namespace, name, static_uid).await,
            // The results of orders are written for many nodes together (`jobs`).
            Report::Order { .. } => return Outcome::Refused("this is no way for what comes of orders".to_owned()),
            Report::Unknown => return Outcome::Refused("this bridge does not know such a report".to_owned()),
        };
        judged(report, written)
    }

    /// Returns a pod's status without addresses of other nodes: otherwise, Services and NetworkPolicies would use them.
    fn with_own_addresses<'a>(&self, namespace: &str, name: &str, status: &'a Value) -> Cow<'a, Value> {
        let node = &self.node.name;
        let Some((right, why)) = self.pod_ranges.without_foreign(node, status) else { return Cow::Borrowed(status) };
        let what = printable(format_args!("status of pod {namespace}/{name}: {why}")).to_string();
        log::warn!("node {node}: {what}; written without addresses");
        Cow::Owned(right)
    }

    /// Writes the node's object again as last reported, after another client changed or deleted it.
    pub(super) async fn rewrite_node(&self) -> Outcome {
        let _turn = self.node_turn.lock().await;
        let newest = self.newest_node().clone();
        // It was valid JSON when it was stored.
        match newest.and_then(|text| serde_json::from_str(&text).ok()) {
            Some(node) => {
                let written = self.write_node(&node).await;
                judged(&Report::Node { node }, written)
            }
            None => Outcome::Written,
        }
    }

    /// Whether no other bridge has a newer connection of this node, as far as the API knows.
    pub(super) async fn is_newest(&self) -> kube::Result<bool> {
        let node: kube::Result<Value> = self.own.get(&format!("/api/v1/nodes/{}", self.node.name)).await;
        match node {
            Ok(node) => Ok(session_of(&node["metadata"]["annotations"][SESSION_ANNOTATION]) <= self.session),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn newest_node(&self) -> MutexGuard<'_, Option<Box<str>>> {
        self.newest_node.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fencing number in the value of [`SESSION_ANNOTATION`]; 0 without one.
fn session_of(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Deletes a pod object that no container belongs to.
pub(super) async fn delete_pod(requests: &Requests, key: &ObjectKey, uid: &str) -> Outcome {
    outcome(pod::gone(requests, &key.namespace, &key.name, uid).await)
}

/// Sets the Ready condition of a pod whose containers are ready, in this version if it is known.
pub(super) async fn restore_ready(requests: &Requests, key: &ObjectKey, uid: &str, version: Option<u64>) -> Outcome {
    let patch = pod::ready_patch(uid, version, Timestamp::now());
    outcome(pod::ready(requests, &key.namespace, &key.name, &patch).await)
}

fn outcome(written: Result<(), Failure>) -> Outcome {
    match written {
        Ok(()) => Outcome::Written,
        Err(Failure::Refused(reason)) => Outcome::Refused(reason),
        // The next attempt checks first which bridge has the node.
        Err(Failure::Fenced) => Outcome::Retry("the node is connected to another bridge".to_owned()),
        Err(Failure::Changed) => Outcome::Retry("the object was changed meanwhile".to_owned()),
        Err(Failure::Api(error)) => classify(&error),
    }
}

/// Reason why a report was not written.
#[derive(Debug)]
enum Failure {
    Refused(String),
    /// A newer connection of the node is at another bridge.
    Fenced,
    /// Another client has written the object since it was read.
    Changed,
    Api(kube::Error),
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        Self::Api(error)
    }
}

/// Decides whether a retry may help. A refusal of the API is final, unless its reason is load or the bridge's
/// credentials, which may be renewed.
fn classify(error: &kube::Error) -> Outcome {
    match error {
        kube::Error::Api(status) if (400..500).contains(&status.code) && ![401, 408, 429].contains(&status.code) => {
            Outcome::Refused(status.message.clone())
        }
        kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => Outcome::Refused(error.to_string()),
        _ => Outcome::Retry(error.to_string()),
    }
}

/// Decides what happens to a report after the API's answer. A refusal of a status for a missing right (403) or by a
/// policy (422, as of a ValidatingAdmissionPolicy) is retried later, because an administrator may correct it and the
/// node does not report again. Events are not retried, and a mirror that is invalid (422) stays invalid.
fn judged(report: &Report, written: Result<(), Failure>) -> Outcome {
    if is_of_the_past(report, &written) {
        return Outcome::Written;
    }
    let passing = match report {
        Report::PodStatus { .. } | Report::PodGone { .. } | Report::Node { .. } => &[403, 422][..],
        Report::MirrorPod { .. } | Report::MirrorGone { .. } => &[403],
        Report::Event { .. } | Report::Order { .. } | Report::Unknown => &[],
    };
    let passing = matches!(&written, Err(Failure::Api(error))
        if code(error).is_some_and(|code| passing.contains(&code)) && !is_of_another(error));
    match outcome(written) {
        Outcome::Refused(reason) if passing => Outcome::Later(reason),
        other => other,
    }
}

/// Whether the report is about a pod, or into a namespace, that is deleted or terminating: the report is then out of
/// date.
fn is_of_the_past(report: &Report, written: &Result<(), Failure>) -> bool {
    let Err(Failure::Api(error)) = written else { return false };
    match report {
        Report::PodStatus { .. } => code(error) == Some(404),
        Report::Event { .. } => code(error) == Some(404) || is_caused_by(error, |cause| cause.reason == NAMESPACE_ENDS),
        _ => false,
    }
}

/// Cause with which the API refuses to create objects in a terminating namespace (K8s `NamespaceTerminatingCause`).
const NAMESPACE_ENDS: &str = "NamespaceTerminating";

fn is_caused_by(error: &kube::Error, is: impl Fn(&StatusCause) -> bool) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.details.iter().flat_map(|details| &details.causes).any(is)
}

/// Whether the API refused a patch because the object has another uid: a successor of the same name.
fn is_of_another(error: &kube::Error) -> bool {
    is_caused_by(error, |cause| cause.field == "metadata.uid")
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    #[test]
    fn refusals_are_final_and_trouble_is_not() {
        let api = |code| kube::Error::Api(Box::new(Status::failure("m", "r").with_code(code)));
        for code in [400, 403, 404, 409, 413, 422] {
            assert_eq!(classify(&api(code)), Outcome::Refused("m".into()), "{code}");
        }
        for code in [401, 408, 429, 500, 502, 503, 504] {
            assert!(matches!(classify(&api(code)), Outcome::Retry(_)), "{code}");
        }
        let broken = kube::Error::SerdeError(serde_json::from_str::<u8>("x").unwrap_err());
        assert!(matches!(classify(&broken), Outcome::Retry(_)), "nonsense in an answer proves nothing");
    }

    /// The outcome of a report that the API answers with this code, for this field.
    fn answered(report: &Report, code: u16, field: &str) -> Outcome {
        let details = json!({"causes": [{"reason": "r", "message": "m", "field": field}]});
        let mut status = Status::failure("m", "r").with_code(code);
        status.details = serde_json::from_value(details).unwrap();
        judged(report, Err(Failure::Api(kube::Error::Api(Box::new(status)))))
    }

    #[test]
    fn what_somebody_may_mend_is_tried_again() {
        let (namespace, name, uid) = (String::from("default"), String::from("p"), String::from("u"));
        let gone = Report::PodGone { namespace: namespace.clone(), name: name.clone(), uid: uid.clone() };
        let status = Report::PodStatus { namespace, name, uid, status: Value::Null };
        let (mirror, event) = (Report::MirrorPod { pod: Value::Null }, Report::Event { event: Value::Null });
        let (later, refused) = (Outcome::Later("m".into()), Outcome::Refused("m".into()));
        for report in [&status, &gone, &Report::Node { node: Value::Null }] {
            assert_eq!(answered(report, 403, ""), later);
            assert_eq!(answered(report, 422, "status"), later);
            assert_eq!(answered(report, 422, "metadata.uid"), refused, "it has a successor");
        }
        assert_eq!(answered(&gone, 404, ""), refused);
        assert_eq!(answered(&Report::Node { node: Value::Null }, 404, ""), refused);
        assert_eq!((answered(&mirror, 403, ""), answered(&mirror, 422, "")), (later, refused.clone()));
        assert_eq!((answered(&event, 403, ""), answered(&event, 422, "")), (refused.clone(), refused));
    }

    #[test]
    fn report_about_what_has_gone_is_done() {
        let uid = || "u".to_owned();
        let status = Report::PodStatus { namespace: uid(), name: uid(), uid: uid(), status: Value::Null };
        let event = Report::Event { event: Value::Null };
        assert_eq!((answered(&status, 404, ""), answered(&event, 404, "")), (Outcome::Written, Outcome::Written));
        let cause = json!({"causes": [{"reason": NAMESPACE_ENDS, "message": "m", "field": "metadata.namespace"}]});
        let mut ends = Status::failure("m", "r").with_code(403);
        ends.details = serde_json::from_value(cause).unwrap();
        let ends = judged(&event, Err(Failure::Api(kube::Error::Api(Box::new(ends)))));
        assert_eq!(ends, Outcome::Written);
    }
}
