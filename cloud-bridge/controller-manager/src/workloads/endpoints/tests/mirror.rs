//! Endpoints that people write for a Service without a selector.

use serde_json::{Value, json};

use super::{course, slices};
use crate::workloads::simulation::{Course, key};
use crate::workloads::world::Kind;

fn endpoints(subsets: &Value) -> Value {
    json!({"metadata": {"name": "web", "labels": {"team": "b"}, "annotations": {
        "a": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"}}, "subsets": subsets})
}

fn written(subsets: &Value) -> Course {
    let mut course = course(&json!({"selector": null}));
    course.model.put(Kind::Endpoints, endpoints(subsets));
    course.step(2);
    course
}

#[test]
fn endpoints_that_people_write_become_a_slice_that_follows_them() {
    let mut course = written(&json!([{"addresses": [{"ip": "10.1.2.3", "hostname": "db"}],
        "notReadyAddresses": [{"ip": "10.1.2.4", "nodeName": "n"}, {"ip": "no address"}], "ports": [{"port": 80, "protocol": "TCP"}]}]));
    let slice = slices(&course.model)[0].clone();
    assert_eq!(
        slice["metadata"]["labels"],
        json!({"team": "b", "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io"})
    );
    assert_eq!(slice["metadata"]["annotations"], json!({"a": "1"}));
    assert_eq!(slice["metadata"]["ownerReferences"][0]["kind"], "Endpoints");
    assert_eq!(slice["ports"], json!([{"name": "", "port": 80, "protocol": "TCP"}]));
    assert_eq!(
        slice["endpoints"],
        json!([{"addresses": ["10.1.2.3"], "conditions": {"ready": true}, "hostname": "db"},
            {"addresses": ["10.1.2.4"], "conditions": {"ready": false}, "nodeName": "n"}])
    );
    course.model.change(Kind::Endpoints, &key("web"), |endpoints| {
        endpoints["subsets"] = json!([{"addresses": [{"ip": "10.2.3.4"}], "ports": [{"port": 80, "protocol": "TCP"}]}]);
    });
    course.step(2);
    let now = slices(&course.model);
    assert_eq!((now.len(), &now[0]["metadata"]["uid"]), (1, &slice["metadata"]["uid"]), "changed where it was");
    assert_eq!(now[0]["endpoints"][0]["addresses"], json!(["10.2.3.4"]));
    course.model.remove(Kind::Endpoints, &key("web"));
    course.step(2);
    assert!(slices(&course.model).is_empty());
}

#[test]
fn a_slice_for_each_family_and_set_of_ports() {
    let course = written(&json!([
        {"addresses": [{"ip": "10.1.2.3"}, {"ip": "fd00::1"}], "ports": [{"name": "a", "port": 80, "protocol": "TCP"}]},
        {"addresses": [{"ip": "10.1.2.3"}], "ports": [{"name": "b", "port": 81, "protocol": "UDP"}]},
        {"addresses": [{"ip": "10.1.2.3"}], "notReadyAddresses": [{"ip": "10.1.2.9"}], "ports": [{"name": "a", "port": 80}]},
    ]));
    let mut told: Vec<_> = slices(&course.model)
        .iter()
        .map(|slice| {
            let count = slice["endpoints"].as_array().unwrap().len();
            (slice["addressType"].as_str().unwrap().to_owned(), slice["ports"][0]["port"].as_u64().unwrap(), count)
        })
        .collect();
    told.sort();
    assert_eq!(told, [("IPv4".to_owned(), 80, 2), ("IPv4".to_owned(), 81, 1), ("IPv6".to_owned(), 80, 1)]);
}

#[test]
fn what_is_not_to_be_mirrored_has_no_slice() {
    let subsets = json!([{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80, "protocol": "TCP"}]}]);
    let mut course = written(&subsets);
    assert_eq!(slices(&course.model).len(), 1);
    course.model.change(Kind::Endpoints, &key("web"), |endpoints| {
        endpoints["metadata"]["labels"]["endpointslice.kubernetes.io/skip-mirror"] = "true".into();
    });
    course.step(2);
    assert!(slices(&course.model).is_empty());
    course.model.change(Kind::Endpoints, &key("web"), |endpoints| endpoints["metadata"]["labels"] = json!({}));
    course.step(2);
    assert_eq!(slices(&course.model).len(), 1);
    // The Service selects pods from now on.
    course.model.change(Kind::Service, &key("web"), |service| service["spec"]["selector"] = json!({"app": "web"}));
    course.step(2);
    let left = slices(&course.model);
    let by = left[0]["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"].as_str();
    assert_eq!((left.len(), by), (1, Some("endpointslice-controller.k8s.io")));
}

#[test]
fn a_slice_that_somebody_else_removed_is_made_again() {
    let mut course = written(&json!([{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80, "protocol": "TCP"}]}]));
    let all = course.model.names(Kind::EndpointSlice);
    course.model.remove(Kind::EndpointSlice, &all[0]);
    course.step(2);
    assert_eq!(slices(&course.model).len(), 1);
}
