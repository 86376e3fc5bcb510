//! Endpoints of a Service as a node sees them: the fields that affect packets or DNS answers, with their own names.
//! Pure.

use std::sync::Arc;

use edge_protocol::message::{Object, ObjectDigest};
use kube::api::DynamicObject;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::service_view::{items, port};
use super::sites::Members;
use super::slim::made_object;
use super::told::kinds::Kind;

const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The part of an EndpointSlice that nodes may get, as text: parsed, it takes twenty times as much.
///
/// The first line has the ports. Each further line is an endpoint: its node if it is a pod, a space, and its view.
#[derive(Clone)]
pub(super) struct SliceText(Arc<str>);

impl SliceText {
    pub(super) fn of(slice: &DynamicObject) -> Self {
        let ports: Vec<Value> = items(&slice.data["ports"]).map(port).collect();
        let mut text = Value::from(ports).to_string();
        for from in items(&slice.data["endpoints"]) {
            let is_pod = from["targetRef"]["kind"] == "Pod";
            let node = if is_pod { from["nodeName"].as_str().filter(|node| is_name(node)) } else { Some("") };
            // A pod without a node is told to no node.
            if let Some(node) = node {
                text.extend(["\n", node, " ", endpoint(from, is_pod).to_string().as_str()]);
            }
        }
        Self(text.into())
    }

    /// Size in bytes.
    pub(super) fn size(&self) -> usize {
        self.0.len()
    }

    /// Parses the endpoints for the nodes of a site. `None` without endpoints.
    fn view(&self, site: Option<&Members>) -> Option<Value> {
        let mut lines = self.0.split('\n');
        let ports = lines.next()?;
        let is_told = |node: &str| node.is_empty() || site.is_some_and(|site| site.has(node));
        let told = lines.filter_map(|line| line.split_once(' ')).filter(|(node, _)| is_told(node));
        let endpoints: Vec<Value> = told.filter_map(|(_, view)| serde_json::from_str(view).ok()).collect();
        (!endpoints.is_empty()).then_some(())?;
        let ports: Value = serde_json::from_str(ports).ok()?;
        Some(json!({ "ports": ports, "endpoints": endpoints }))
    }
}

fn is_name(node: &str) -> bool {
    !node.is_empty() && !node.contains([' ', '\n'])
}

/// Name of the Service that a slice belongs to.
pub(super) fn service_of(slice: &DynamicObject) -> Option<String> {
    slice.metadata.labels.as_ref()?.get(SERVICE_NAME).cloned()
}

/// Endpoints that are not pods, and pods of these nodes: a node knows its own pods better. `None` without endpoints.
pub(super) fn endpoint_view(service: &ObjectDigest, slices: &[SliceText], site: Option<&Members>) -> Option<Object> {
    let found: Vec<Value> = slices.iter().filter_map(|slice| slice.view(site)).collect();
    (!found.is_empty()).then_some(())?;
    let key = Kind::EndpointView.key(&service.key.namespace, &service.key.name);
    Some(made_object(key, service.uid.clone(), json!({ "kind": Kind::EndpointView.name(), "slices": found })))
}

fn endpoint(from: &Value, is_pod: bool) -> Value {
    let mut endpoint = json!({ "addresses": from["addresses"] });
    if is_pod {
        endpoint.set("pod", true.into());
    }
    let hints = |field: &str| -> Vec<Value> {
        items(&from["hints"][field]).map(|hint| &hint["name"]).filter(|name| name.is_string()).cloned().collect()
    };
    for field in ["forZones", "forNodes"] {
        let names = hints(field);
        if !names.is_empty() {
            endpoint.set(field, names.into());
        }
    }
    for field in ["nodeName", "hostname", "zone"] {
        if from[field].is_string() {
            endpoint.set(field, from[field].clone());
        }
    }
    let conditions = &from["conditions"];
    for (condition, field, unusual) in
        [("ready", "notReady", false), ("serving", "notServing", false), ("terminating", "terminating", true)]
    {
        if conditions[condition] == unusual {
            endpoint.set(field, true.into());
        }
    }
    endpoint
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::sites::{Neighbour, Sites};

    fn slice(endpoints: Value) -> SliceText {
        let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4",
            "ports": [{"name": "http", "protocol": "TCP", "port": 8080}], "endpoints": endpoints});
        SliceText::of(&serde_json::from_value(slice).unwrap())
    }

    fn view(slices: &[SliceText], site: Option<&str>) -> Option<Value> {
        let key = Kind::ServiceView.key("shop", "web");
        let mut sites = Sites::default();
        sites.set("n1", Some(Neighbour::at("hall")));
        let members = site.map(|site| Members::of(&sites, site));
        let view = endpoint_view(&made_object(key, "u".into(), json!({})).digest, slices, members.as_ref());
        view.map(|view| view.body["slices"].clone())
    }

    fn pod(node: &str) -> Value {
        json!({"addresses": ["10.0.0.2"], "nodeName": node, "zone": "z", "targetRef": {"kind": "Pod"},
            "hints": {"forZones": [{"name": "z"}], "forNodes": [{"name": "n1"}, {"name": 7}, 7]}})
    }

    #[test]
    fn endpoints_of_pods_are_told_to_nodes_that_have_a_way_to_them() {
        let web = slice(json!([pod("n1"), pod("n2")]));
        let slices = std::slice::from_ref(&web);
        assert!(view(slices, None).is_none() && view(slices, Some("other")).is_none());
        let told = json!([{"addresses": ["10.0.0.2"], "pod": true, "nodeName": "n1", "zone": "z",
            "forZones": ["z"], "forNodes": ["n1"]}]);
        assert_eq!(view(slices, Some("hall")).unwrap()[0]["endpoints"], told);
        let own =
            json!({"addresses": ["192.0.2.7"], "conditions": {"ready": true, "serving": false, "terminating": true}});
        let told = view(&[slice(json!([pod("n1"), own])), slice(json!([])), slice(json!("x"))], None);
        let wanted = json!([{"ports": [{"name": "http", "port": 8080}],
            "endpoints": [{"addresses": ["192.0.2.7"], "notServing": true, "terminating": true}]}]);
        assert_eq!(told.unwrap(), wanted);
    }

    #[test]
    fn any_text_in_a_slice_stays_one_endpoint() {
        let odd = "n1 {}\nn1 {\"addresses\": [\"10.0.0.9\"]}\n";
        let unknown = json!({"addresses": ["10.0.0.3"], "targetRef": {"kind": "Pod"}});
        let named = json!({"addresses": ["192.0.2.7"], "nodeName": odd, "hostname": odd});
        let slices = [slice(json!([pod(odd), pod(""), unknown, named]))];
        let told = json!([{"addresses": ["192.0.2.7"], "nodeName": odd, "hostname": odd}]);
        assert_eq!(view(&slices, Some("hall")).unwrap()[0]["endpoints"], told);
    }

    #[test]
    fn endpoint_takes_at_most_250_bytes() {
        let endpoint = |n: usize| {
            let target = json!({"kind": "Pod", "namespace": "shop", "name": format!("web-7d9f8b6c5-{n:05}"),
                "uid": "0b5c1f0e-6f0a-4b43-9c43-5a8d7e1f2a3b"});
            json!({"addresses": [format!("10.86.{}.{}", n / 250, n % 250)], "nodeName": format!("site-{n}-board-{n}"),
                "zone": "site-north-1", "hints": {"forZones": [{"name": "site-north-1"}]}, "targetRef": target,
                "conditions": {"ready": true, "serving": true, "terminating": false}})
        };
        let text = slice((0..1000).map(endpoint).collect());
        assert!(text.size() < 1000 * 250, "{} bytes", text.size());
    }

    #[test]
    fn slice_belongs_to_the_service_of_its_label() {
        let slice = |labels: Value| -> DynamicObject {
            serde_json::from_value(json!({"metadata": {"name": "s", "labels": labels}})).unwrap()
        };
        assert_eq!(service_of(&slice(json!({SERVICE_NAME: "web"}))), Some("web".to_owned()));
        assert_eq!(service_of(&slice(json!({"app": "web"}))), None);
    }
}
