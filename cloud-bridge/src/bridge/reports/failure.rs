//! Reasons why a report is not written, and whether another attempt may help. Pure.

use edge_protocol::message::Report;
use kube::core::response::StatusCause;

use crate::bridge::requests::{code, is_refusal, words};
use crate::bridge::work_queue::Outcome;

/// Reason why a report was not written.
#[derive(Debug)]
pub(super) enum Failure {
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

/// Converts a failure without regard to its report.
pub(super) fn outcome(written: Result<(), Failure>) -> Outcome {
    match written {
        Ok(()) => Outcome::Written,
        Err(Failure::Refused(reason)) => Outcome::Refused(reason),
        // The next attempt checks first which bridge has the node.
        Err(Failure::Fenced) => Outcome::Retry("the node is connected to another bridge".to_owned()),
        Err(Failure::Changed) => Outcome::Conflict("the object was changed meanwhile".to_owned()),
        Err(Failure::Api(error)) if is_refusal(&error) => Outcome::Refused(words(&error)),
        Err(Failure::Api(error)) => Outcome::Retry(error.to_string()),
    }
}

/// Decides what happens to a report after the API's answer. A refusal of a status for a missing right (403) or by a
/// policy (422, as of a ValidatingAdmissionPolicy) is retried later, because an administrator may correct it and the
/// node does not report again. Events are not retried, and a mirror that is invalid (422) stays invalid.
pub(super) fn judged(report: &Report, written: Result<(), Failure>) -> Outcome {
    if is_of_the_past(report, &written) {
        return Outcome::Written;
    }
    let passing = match report {
        Report::PodStatus { .. } | Report::PodGone { .. } | Report::Node { .. } => &[403, 422][..],
        Report::MirrorPod { .. } | Report::MirrorGone { .. } | Report::CsiNode { .. } => &[403],
        Report::Event { .. } | Report::Order { .. } | Report::Unknown => &[],
    };
    let passing = matches!(&written, Err(Failure::Api(error))
        if code(error).is_some_and(|code| passing.contains(&code)) && !is_of_another(error));
    match outcome(written) {
        Outcome::Refused(reason) if passing => Outcome::Later(reason),
        // It is written without a version, so the other client may be a newer connection, whose fencing number it would
        // replace: the check for one follows a pause.
        Outcome::Conflict(reason) if matches!(report, Report::Node { .. }) => Outcome::Retry(reason),
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
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn refusals_are_final_and_trouble_is_not() {
        let api = |code| Err(Failure::Api(kube::Error::Api(Box::new(Status::failure("m", "r").with_code(code)))));
        assert_eq!(outcome(api(400)), Outcome::Refused("m".into()));
        assert!(matches!(outcome(api(503)), Outcome::Retry(_)));
    }

    #[test]
    fn conflict_needs_no_pause_and_another_bridge_does() {
        assert!(matches!(outcome(Err(Failure::Changed)), Outcome::Conflict(_)));
        // The check which bridge has the node follows a pause.
        assert!(matches!(outcome(Err(Failure::Fenced)), Outcome::Retry(_)));
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
        assert_eq!((answered(&event, 403, ""), answered(&event, 422, "")), (refused.clone(), refused.clone()));
        let drivers = Report::CsiNode { drivers: Value::Null };
        let later = Outcome::Later("m".into());
        assert_eq!((answered(&drivers, 403, ""), answered(&drivers, 422, "")), (later, refused));
    }

    #[test]
    fn conflict_about_a_node_waits_for_the_check_of_connections() {
        let judged = |report: &Report| judged(report, Err(Failure::Changed));
        let uid = || "u".to_owned();
        let status = Report::PodStatus { namespace: uid(), name: uid(), uid: uid(), status: Value::Null };
        assert!(matches!(judged(&status), Outcome::Conflict(_)), "it is written in a version");
        assert!(matches!(judged(&Report::Node { node: Value::Null }), Outcome::Retry(_)));
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
