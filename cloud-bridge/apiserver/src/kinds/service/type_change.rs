//! Fields that a Service loses when its type changes: those allocated for the old type, if unchanged (K8s
//! pkg/registry/core/service/strategy.go `dropTypeDependentFields`). Node ports: `node_port.rs`.

use sampan_json::SetField;
use serde_json::{Value, json};

use apimachinery::json::{items, object_mut, text};

const ADDRESS: [&str; 2] = ["clusterIP", "clusterIPs"];

pub(super) fn forget(new: &mut Value, old: &Value) {
    let of_old = &old["spec"];
    let kind = text(&new["spec"], "type").to_owned();
    let reached = |spec: &Value| {
        matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
            || text(spec, "type") == "ClusterIP" && !items(spec, "externalIPs").is_empty()
    };
    let named_now = kind == "ExternalName" && text(of_old, "type") != "ExternalName";
    let balanced_no_more = kind != "LoadBalancer" && text(of_old, "type") == "LoadBalancer";
    let reached_no_more = reached(of_old) && !reached(&new["spec"]);
    if let Some(spec) = object_mut(new, "spec") {
        let mut drop = |fields: &[&str]| {
            if fields.iter().all(|field| spec.get(*field).unwrap_or(&Value::Null) == &of_old[*field]) {
                fields.iter().for_each(|field| drop(spec.remove(*field)));
            }
        };
        if named_now {
            drop(&ADDRESS);
            drop(&["ipFamilies"]);
            drop(&["ipFamilyPolicy"]);
        }
        if balanced_no_more {
            drop(&["allocateLoadBalancerNodePorts"]);
            drop(&["loadBalancerClass"]);
        }
        if reached_no_more {
            drop(&["externalTrafficPolicy"]);
        }
    }
    if kind != "LoadBalancer" && new["status"]["loadBalancer"].is_object() {
        new.set_at(&["status", "loadBalancer"], json!({}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: &str, more: &Value) -> Value {
        let mut spec = json!({"type": kind});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"spec": spec, "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}})
    }

    fn forgotten(from: Value, kind: &str) -> Value {
        let mut new = from.clone();
        new["spec"]["type"] = kind.into();
        forget(&mut new, &from);
        new
    }

    #[test]
    fn what_it_got_for_its_old_type_goes() {
        let address = json!({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "externalTrafficPolicy": "Local", "selector": {"a": "b"}});
        let named = forgotten(of("NodePort", &address), "ExternalName");
        assert_eq!(named["spec"], json!({"type": "ExternalName", "selector": {"a": "b"}}));
        let inside = forgotten(of("LoadBalancer", &address), "ClusterIP");
        assert_eq!(
            (&inside["spec"]["clusterIP"], &inside["spec"]["externalTrafficPolicy"]),
            (&json!("10.96.0.9"), &Value::Null)
        );
        assert_eq!(inside["status"], json!({"loadBalancer": {}}));
        let same = of("LoadBalancer", &address);
        assert_eq!(forgotten(same.clone(), "LoadBalancer"), same);
    }

    #[test]
    fn what_somebody_asks_for_stays_to_be_refused() {
        let old = of("ClusterIP", &json!({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"]}));
        let mut new = of("ExternalName", &json!({"clusterIP": "10.96.0.8", "clusterIPs": ["10.96.0.9"]}));
        forget(&mut new, &old);
        assert_eq!(new["spec"]["clusterIP"], "10.96.0.8");
    }
}
