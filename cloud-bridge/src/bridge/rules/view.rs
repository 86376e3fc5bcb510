//! Rules and endpoints as users write them (KubeEdge's rules.kubeedge.io/v1). Pure; validates nothing.

use std::collections::BTreeMap;

use kube::api::DynamicObject;
use serde_json::Value;

/// Annotation of a rule: its priority, 0 to 9. Under pressure, messages with a high priority are dropped last.
const PRIORITY: &str = "sampan.dev/priority";

/// Fields of the resource of a source or target.
type Fields = BTreeMap<String, String>;

/// A Rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub uid: Box<str>,
    /// Names of endpoints in its namespace.
    pub(super) source: String,
    pub(super) target: String,
    pub(super) source_resource: Fields,
    pub(super) target_resource: Fields,
    pub(super) priority: u8,
    /// Seconds since 1970; of two rules for the same, the older gets it.
    pub(super) created: i64,
}

impl Rule {
    /// Parses an object of the API; `None` if it is not a rule.
    pub fn read(object: Value) -> Option<Self> {
        Self::of(&serde_json::from_value(object).ok()?)
    }

    /// `None` for an object without a uid, or that is being deleted.
    pub(super) fn of(object: &DynamicObject) -> Option<Self> {
        let spec = &object.data["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let priority = object.metadata.annotations.iter().flatten().find(|(name, _)| *name == PRIORITY);
        let priority = priority.and_then(|(_, text)| text.parse().ok()).unwrap_or(0_u8);
        let uid = object.metadata.uid.as_deref().filter(|_| object.metadata.deletion_timestamp.is_none())?;
        Some(Self {
            uid: uid.into(),
            source: text(&spec["source"]),
            target: text(&spec["target"]),
            source_resource: fields(&spec["sourceResource"]),
            target_resource: fields(&spec["targetResource"]),
            priority: priority.min(9),
            created: object.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        })
    }
}

fn fields(value: &Value) -> Fields {
    let fields = value.as_object().into_iter().flatten();
    fields.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

/// Type of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointType {
    /// An HTTP server outside the nodes.
    Rest,
    /// The broker of a node.
    Eventbus,
    /// A server on a node, at this port; or programs on it, which send requests.
    Servicebus(u16),
}

/// A RuleEndpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub kind: EndpointType,
}

impl Endpoint {
    /// Parses an object of the API; `None` if it is not a RuleEndpoint.
    pub fn read(object: Value) -> Option<Self> {
        Self::of(&serde_json::from_value(object).ok()?)
    }

    pub(super) fn of(object: &DynamicObject) -> Option<Self> {
        let spec = &object.data["spec"];
        let port = || spec["properties"]["service_port"].as_str()?.parse().ok().filter(|port| *port > 0);
        let kind = match spec["ruleEndpointType"].as_str()? {
            "rest" => EndpointType::Rest,
            "eventbus" => EndpointType::Eventbus,
            "servicebus" => EndpointType::Servicebus(port()?),
            _ => return None,
        };
        Some(Self { kind })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_are_read_as_they_are_written() {
        let rule = Rule::read(json!({
            "metadata": {"namespace": "ns", "name": "r", "uid": "u", "annotations": {"sampan.dev/priority": "7"}},
            "spec": {"source": "bus", "sourceResource": {"topic": "temp", "node_name": "n"}, "target": "rest",
                "targetResource": {"resource": "http://a/b"}}, "status": {"successMessages": 3}}));
        let rule = rule.unwrap();
        assert_eq!((&*rule.uid, &*rule.source, &*rule.target, rule.priority), ("u", "bus", "rest", 7));
        assert_eq!(rule.source_resource["topic"], "temp");
        for (annotation, priority) in [("99", 9), ("300", 0), ("x", 0)] {
            let odd = json!({"metadata": {"uid": "u", "annotations": {PRIORITY: annotation}}, "spec": {"source": 1}});
            assert_eq!(Rule::read(odd).map(|rule| rule.priority), Some(priority));
        }
        let going = json!({"metadata": {"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert!(Rule::read(going).is_none() && Rule::read(json!({"metadata": {}})).is_none());
    }

    #[test]
    fn ends_are_of_three_kinds() {
        let end = |spec: Value| Endpoint::read(json!({"metadata": {}, "spec": spec})).map(|end| end.kind);
        assert_eq!(end(json!({"ruleEndpointType": "rest"})), Some(EndpointType::Rest));
        assert_eq!(end(json!({"ruleEndpointType": "eventbus", "properties": null})), Some(EndpointType::Eventbus));
        let bus = |port: &str| json!({"ruleEndpointType": "servicebus", "properties": {"service_port": port}});
        assert_eq!(end(bus("8080")), Some(EndpointType::Servicebus(8080)));
        for bad in [bus("0"), bus("x"), bus("70000"), json!({"ruleEndpointType": "carrier pigeon"}), json!(null)] {
            assert_eq!(end(bad), None);
        }
    }
}
