//! Kubernetes Events (core/v1) from drafts. Pure.

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::Value;

use crate::pod::clock::Now;
use crate::pod::record::PodRecord;
use crate::pod::step::EventDraft;

/// `source.component`: what users filter by, so the kubelet's own.
const COMPONENT: &str = "kubelet";

/// An event about a pod. `api_uid` is the pod's uid in the API (the mirror's for a static pod), if there is one.
pub(super) fn about_pod(record: &PodRecord, api_uid: Option<&str>, draft: &EventDraft, node: &str, now: &Now) -> Value {
    let path = draft.field_path.clone();
    let involved = ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: Some(record.namespace.clone()),
        name: Some(record.name.clone()),
        uid: Some(api_uid.unwrap_or(&record.uid).into()),
        field_path: (!path.is_empty()).then_some(path),
        resource_version: None,
    };
    event(involved, draft.warning, &draft.reason, &draft.message, node, now)
}

/// An event about this node, in namespace `default` as the kubelet's.
pub(super) fn about_node(node: &str, warning: bool, reason: &str, message: &str, now: &Now) -> Value {
    let involved = ObjectReference {
        kind: Some("Node".into()),
        name: Some(node.into()),
        uid: Some(node.into()),
        ..ObjectReference::default()
    };
    event(involved, warning, reason, message, node, now)
}

fn event(involved: ObjectReference, warning: bool, reason: &str, message: &str, node: &str, now: &Now) -> Value {
    let time = Time(now.wall);
    // client-go names events OBJECT.HEX-TIME; what one turn decides has one time, and two containers may share the rest.
    let path = involved.field_path.as_deref().unwrap_or_default();
    let unique = crate::pod::id::hex(format!("{path}/{reason}/{message}").as_bytes());
    let name = format!(
        "{}.{:x}{}",
        involved.name.as_deref().unwrap_or_default(),
        now.wall.as_nanosecond(),
        unique.get(..8).unwrap_or_default()
    );
    let event = Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(involved.namespace.clone().unwrap_or_else(|| "default".into())),
            ..ObjectMeta::default()
        },
        involved_object: involved,
        reason: Some(reason.into()),
        message: Some(message.into()),
        type_: Some(if warning { "Warning" } else { "Normal" }.into()),
        source: Some(EventSource { component: Some(COMPONENT.into()), host: Some(node.into()) }),
        first_timestamp: Some(time.clone()),
        last_timestamp: Some(time),
        count: Some(1),
        reporting_component: Some(COMPONENT.into()),
        reporting_instance: Some(node.into()),
        ..Event::default()
    };
    serde_json::to_value(event).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::clock::Mono;

    /// The API server takes one event of a name: what is told at one moment of two containers must not be one name.
    #[test]
    fn events_of_one_moment_have_names_of_their_own() {
        let now = Now { mono: Mono(1), wall: jiff::Timestamp::UNIX_EPOCH, boot_id: "b".into() };
        let named = |reason: &str, path: &str| {
            let field_path = (!path.is_empty()).then(|| path.to_owned());
            let involved = ObjectReference { name: Some("p".into()), field_path, ..ObjectReference::default() };
            event(involved, false, reason, "Container started", "n", &now)["metadata"]["name"].to_string()
        };
        let names =
            [named("Started", "spec.containers{a}"), named("Started", "spec.containers{b}"), named("Started", "")];
        assert!(names[0] != names[1] && names[1] != names[2] && names[0] != named("Created", "spec.containers{a}"));
        assert_eq!(names[0], named("Started", "spec.containers{a}"));
    }
}
