//! Endpoints of Services, in the model of the API.

mod courses;
mod mirror;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::workloads::simulation::{Course, Model, key};
use crate::workloads::world::Kind;

/// A Service with this on top of a selector `app: web`.
fn service(more: &Value) -> Value {
    let mut spec = json!({
        "selector": {"app": "web"}, "clusterIP": "10.96.0.7", "ipFamilies": ["IPv4"], "type": "ClusterIP",
        "ports": [{"port": 80, "targetPort": 8080, "protocol": "TCP"}],
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    json!({"metadata": {"name": "web", "labels": {"team": "a"}}, "spec": spec})
}

fn course(more: &Value) -> Course {
    let mut course = Course::new(1, |_, _| {});
    course.calm = true;
    course.model.put(Kind::Node, node("True"));
    course.model.put(Kind::Service, service(more));
    course.step(2);
    course
}

fn node(ready: &str) -> Value {
    json!({"metadata": {"name": "node", "labels": {"topology.kubernetes.io/zone": "hall"}},
        "status": {"conditions": [{"type": "Ready", "status": ready}]}})
}

/// A pod that runs on the node.
fn pod(name: &str, ip: &str, ready: bool) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "node", "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8000}]}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [
            {"type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": "2024-07-03T10:00:00Z"}]},
    })
}

fn slices(model: &Model) -> Vec<&Value> {
    model.of(Kind::EndpointSlice).collect()
}

/// The conditions of each pod in the slices: ready, serving, terminating.
fn conditions(model: &Model) -> BTreeMap<String, [bool; 3]> {
    let endpoints = slices(model).into_iter().flat_map(|slice| slice["endpoints"].as_array().unwrap());
    let one = |endpoint: &Value| {
        let of = |name: &str| endpoint["conditions"][name] == true;
        (endpoint["targetRef"]["name"].as_str().unwrap().to_owned(), [of("ready"), of("serving"), of("terminating")])
    };
    endpoints.map(one).collect()
}

/// The addresses of the Endpoints: ready ones, others.
fn addresses(model: &Model) -> [Vec<&str>; 2] {
    let subsets = model.get(Kind::Endpoints, "web")["subsets"].as_array().map_or(&[][..], Vec::as_slice);
    ["addresses", "notReadyAddresses"].map(|list| {
        let all = subsets.iter().filter_map(|subset| subset[list].as_array()).flatten();
        all.map(|address| address["ip"].as_str().unwrap()).collect()
    })
}

#[test]
fn a_service_without_pods_has_one_empty_slice_that_says_whose_it_is() {
    let course = course(&json!({}));
    let all = slices(&course.model);
    let metadata = &all[0]["metadata"];
    assert_eq!((all.len(), &all[0]["endpoints"], &all[0]["ports"]), (1, &json!([]), &json!([])));
    assert_eq!(all[0]["addressType"], "IPv4");
    assert_eq!(metadata["generateName"], "web-");
    assert_eq!(
        metadata["labels"],
        json!({"team": "a", "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"})
    );
    let service = course.model.get(Kind::Service, "web");
    assert_eq!(
        metadata["ownerReferences"][0],
        json!({"apiVersion": "v1", "kind": "Service", "name": "web", "uid": service["metadata"]["uid"],
            "controller": true, "blockOwnerDeletion": true})
    );
    assert_eq!(
        metadata["annotations"]["endpoints.kubernetes.io/last-change-trigger-time"],
        service["metadata"]["creationTimestamp"]
    );
    let endpoints = course.model.get(Kind::Endpoints, "web");
    assert_eq!(
        endpoints["metadata"]["labels"],
        json!({"team": "a", "endpoints.kubernetes.io/managed-by": "endpoint-controller"})
    );
    assert!(endpoints["subsets"].is_null());
}

#[test]
fn pods_are_told_with_all_that_is_known_of_them() {
    let mut course = course(&json!({}));
    let mut named = pod("a", "10.0.0.1", true);
    named["spec"]["hostname"] = "one".into();
    named["spec"]["subdomain"] = "web".into();
    course.model.put(Kind::Pod, named);
    course.step(2);
    let slice = slices(&course.model)[0];
    let uid = &course.model.get(Kind::Pod, "a")["metadata"]["uid"];
    let reference = json!({"kind": "Pod", "namespace": "ns", "name": "a", "uid": uid});
    assert_eq!(slice["ports"], json!([{"name": "", "port": 8080, "protocol": "TCP"}]));
    assert_eq!(
        slice["endpoints"],
        json!([{"addresses": ["10.0.0.1"], "conditions": {"ready": true, "serving": true, "terminating": false},
            "hostname": "one", "nodeName": "node", "zone": "hall", "targetRef": reference}])
    );
    let trigger = "endpoints.kubernetes.io/last-change-trigger-time";
    assert_eq!(slice["metadata"]["annotations"][trigger], "2024-07-03T10:00:00Z");
    let endpoints = course.model.get(Kind::Endpoints, "web");
    assert_eq!(
        endpoints["subsets"],
        json!([{"addresses": [{"ip": "10.0.0.1", "hostname": "one", "nodeName": "node", "targetRef": reference}],
            "ports": [{"port": 8080, "protocol": "TCP"}]}])
    );
    assert_eq!(endpoints["metadata"]["annotations"][trigger], "2024-07-03T10:00:00Z");
    assert_eq!(slices(&course.model).len(), 1, "the empty slice was filled, not replaced");
}

#[test]
fn mirror_pods_are_no_endpoints_of_load_balancers() {
    for (kind, count) in [("ClusterIP", 1), ("LoadBalancer", 0)] {
        let mut course = course(&json!({ "type": kind }));
        let mut mirror = pod("static-node", "10.0.0.1", true);
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
        course.model.put(Kind::Pod, mirror);
        course.step(2);
        assert_eq!((conditions(&course.model).len(), addresses(&course.model)[0].len()), (count, count), "{kind}");
    }
}

#[test]
fn readiness_ends_and_deletions_change_what_a_pod_is_worth() {
    let mut course = course(&json!({}));
    for (name, ip) in [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3"), ("d", "10.0.0.4")] {
        course.model.put(Kind::Pod, pod(name, ip, name != "b"));
    }
    course.model.put(Kind::Pod, pod("none", "", true));
    course.model.put(Kind::Pod, pod("special", "127.0.0.1", true));
    course.step(2);
    course
        .model
        .change(Kind::Pod, &key("c"), |pod| pod["metadata"]["deletionTimestamp"] = "2024-07-03T10:00:00Z".into());
    course.model.change(Kind::Pod, &key("d"), |pod| pod["status"]["phase"] = "Succeeded".into());
    course.step(2);
    let wanted = [("a", [true, true, false]), ("b", [false, false, false]), ("c", [false, true, true])];
    assert_eq!(conditions(&course.model), wanted.map(|(name, is)| (name.to_owned(), is)).into());
    assert_eq!(addresses(&course.model), [vec!["10.0.0.1"], vec!["10.0.0.2"]]);
    // A pod that no longer has the label.
    course.model.change(Kind::Pod, &key("a"), |pod| pod["metadata"]["labels"] = json!({"app": "other"}));
    course.model.remove(Kind::Pod, &key("c"));
    course.step(2);
    assert_eq!(conditions(&course.model).into_keys().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn unready_pods_are_published_where_the_service_says_so() {
    let mut course = course(&json!({"publishNotReadyAddresses": true}));
    course.model.put(Kind::Pod, pod("a", "10.0.0.1", false));
    let mut elsewhere = pod("b", "10.0.0.2", false);
    elsewhere["spec"]["nodeName"] = "unknown".into();
    elsewhere["metadata"]["deletionTimestamp"] = "2024-07-03T10:00:00Z".into();
    course.model.put(Kind::Pod, elsewhere);
    course.step(2);
    let wanted = [("a", [true, false, false]), ("b", [true, false, true])];
    assert_eq!(conditions(&course.model), wanted.map(|(name, is)| (name.to_owned(), is)).into());
    assert_eq!(addresses(&course.model), [vec!["10.0.0.1", "10.0.0.2"], vec![]]);
}

#[test]
fn pods_of_a_node_that_is_away_or_unknown_get_nothing() {
    let mut course = course(&json!({}));
    course.model.put(Kind::Pod, pod("a", "10.0.0.1", true));
    let mut early = pod("b", "10.0.0.2", true);
    early["spec"]["nodeName"] = "late".into();
    course.model.put(Kind::Pod, early);
    course.step(2);
    assert_eq!(addresses(&course.model), [vec!["10.0.0.1"], vec![]]);
    course.model.put(Kind::Node, node("Unknown"));
    course.model.put(Kind::Node, json!({"metadata": {"name": "late"}}));
    course.step(2);
    assert_eq!(addresses(&course.model), [vec!["10.0.0.2"], vec!["10.0.0.1"]]);
    assert!(!conditions(&course.model)["a"][0]);
    course.model.put(Kind::Node, node("True"));
    course.step(2);
    assert_eq!(addresses(&course.model), [vec!["10.0.0.1", "10.0.0.2"], vec![]]);
}

#[test]
fn pods_with_other_ports_stand_in_other_slices() {
    let mut course = course(&json!({
        "clusterIP": "None",
        "ports": [{"name": "web", "port": 80, "targetPort": "http"}, {"name": "dns", "port": 53, "targetPort": 53,
            "protocol": "UDP", "appProtocol": "dns"}]}));
    course.model.put(Kind::Pod, pod("a", "10.0.0.1", true));
    let mut other = pod("b", "10.0.0.2", true);
    other["spec"]["initContainers"] = json!([{"name": "s", "restartPolicy": "Always",
        "ports": [{"name": "http", "containerPort": 9000}]}, {"name": "i", "ports": [{"name": "http", "containerPort": 1}]}]);
    other["spec"]["containers"] =
        json!([{"name": "c", "ports": [{"name": "http", "containerPort": 2, "protocol": "UDP"}]}]);
    course.model.put(Kind::Pod, other);
    course.model.put(Kind::Pod, pod("c", "10.0.0.3", true));
    course.model.change(Kind::Pod, &key("c"), |pod| pod["spec"]["containers"] = json!([{"name": "c"}]));
    course.step(2);
    let numbers = |slice: &Value| slice["ports"].as_array().unwrap().iter().map(|port| port["port"].as_i64()).collect();
    let mut all: Vec<Vec<_>> = slices(&course.model).into_iter().map(numbers).collect();
    all.sort();
    assert_eq!(all, [vec![Some(53)], vec![Some(53), Some(8000)], vec![Some(53), Some(9000)]]);
    assert!(
        slices(&course.model).iter().all(|slice| slice["metadata"]["labels"]["service.kubernetes.io/headless"] == "")
    );
    let endpoints = course.model.get(Kind::Endpoints, "web");
    assert_eq!(endpoints["metadata"]["labels"]["service.kubernetes.io/headless"], "");
    assert_eq!(endpoints["subsets"].as_array().unwrap().len(), 3, "all three for dns, one each for web");
}

#[test]
fn each_family_has_slices_and_endpoints_the_first() {
    let mut course = course(&json!({"ipFamilies": ["IPv6", "IPv4"], "clusterIP": "fd00::7"}));
    let mut both = pod("a", "10.0.0.1", true);
    both["status"]["podIPs"] = json!([{"ip": "10.0.0.1"}, {"ip": "fd00:0::1"}]);
    course.model.put(Kind::Pod, both);
    course.step(2);
    let told = |slice: &Value| (slice["addressType"].clone(), slice["endpoints"][0]["addresses"].clone());
    let mut all: Vec<_> = slices(&course.model).into_iter().map(told).collect();
    all.sort_by_key(|(family, _)| family.to_string());
    assert_eq!(all, [(json!("IPv4"), json!(["10.0.0.1"])), (json!("IPv6"), json!(["fd00::1"]))]);
    assert_eq!(addresses(&course.model), [vec!["fd00::1"], vec![]]);
    course.model.change(Kind::Service, &key("web"), |service| service["spec"]["ipFamilies"] = json!(["IPv4"]));
    course.step(2);
    assert_eq!(slices(&course.model).len(), 1);
    assert_eq!(addresses(&course.model), [vec!["10.0.0.1"], vec![]]);
}

#[test]
fn hints_follow_the_wish_of_the_service_for_those_that_get_traffic() {
    let mut course = course(&json!({"trafficDistribution": "PreferSameNode"}));
    course.model.put(Kind::Pod, pod("a", "10.0.0.1", true));
    course.model.put(Kind::Pod, pod("b", "10.0.0.2", false));
    course.step(2);
    let hints = |course: &Course| [0, 1].map(|i| slices(&course.model)[0]["endpoints"][i]["hints"].clone());
    let both = json!({"forNodes": [{"name": "node"}], "forZones": [{"name": "hall"}]});
    assert_eq!(hints(&course), [both, Value::Null]);
    course
        .model
        .change(Kind::Service, &key("web"), |service| service["spec"]["trafficDistribution"] = "PreferClose".into());
    course.step(2);
    assert_eq!(hints(&course), [json!({"forZones": [{"name": "hall"}]}), Value::Null]);
}

#[test]
fn who_needs_no_endpoints_gets_none_and_what_people_wrote_stays() {
    for (more, mirrors) in
        [(json!({"selector": null}), 1), (json!({"selector": {}}), 1), (json!({"type": "ExternalName"}), 0)]
    {
        let mut course = course(&more);
        let own = json!({"metadata": {"name": "own", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1"]}]});
        course.model.put(Kind::EndpointSlice, own);
        let theirs = json!({"metadata": {"name": "web"}, "subsets": [{"addresses": [{"ip": "192.0.2.1"}]}]});
        course.model.put(Kind::Endpoints, theirs);
        course.model.put(Kind::Endpoints, json!({"metadata": {"name": "of-nobody"}}));
        course.model.put(Kind::Pod, pod("a", "10.0.0.1", true));
        course.step(5);
        assert_eq!(slices(&course.model).len(), 1 + mirrors, "{more}");
        assert_eq!(addresses(&course.model), [vec!["192.0.2.1"], vec![]], "{more}");
        // Endpoints are deleted with their Service, also those that a user wrote.
        course.model.remove(Kind::Service, &key("web"));
        course.step(2);
        assert_eq!(course.model.names(Kind::Endpoints), [key("of-nobody")]);
    }
}

#[test]
fn a_new_service_of_an_old_name_takes_nothing_over() {
    let mut course = course(&json!({}));
    course.model.put(Kind::Pod, pod("a", "10.0.0.1", true));
    course.step(2);
    let old = slices(&course.model)[0]["metadata"]["name"].clone();
    course.model.remove(Kind::Service, &key("web"));
    course.model.put(Kind::Service, service(&json!({})));
    course.step(3);
    let all = slices(&course.model);
    assert_eq!(all.len(), 1);
    assert_ne!(all[0]["metadata"]["name"], old);
    let uid = &course.model.get(Kind::Service, "web")["metadata"]["uid"];
    assert_eq!(all[0]["metadata"]["ownerReferences"][0]["uid"], *uid);
    assert_eq!(addresses(&course.model), [vec!["10.0.0.1"], vec![]]);
}

#[test]
fn endpoints_beyond_a_thousand_are_cut_and_slices_are_not() {
    let mut course = course(&json!({}));
    for i in 0..1005 {
        course.model.put(Kind::Pod, pod(&format!("p{i}"), &format!("10.1.{}.{}", i / 250, i % 250), i > 3));
    }
    course.step(2);
    let [ready, unready] = addresses(&course.model);
    assert_eq!((ready.len(), unready.len()), (1000, 0));
    let annotations = &course.model.get(Kind::Endpoints, "web")["metadata"]["annotations"];
    assert_eq!(annotations["endpoints.kubernetes.io/over-capacity"], "truncated");
    let sizes: Vec<usize> =
        slices(&course.model).iter().map(|one| one["endpoints"].as_array().unwrap().len()).collect();
    assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (11, 1005));
    let version = |course: &Course| course.model.get(Kind::Endpoints, "web")["metadata"]["resourceVersion"].clone();
    let before = version(&course);
    course.step(5);
    assert_eq!(version(&course), before, "it is not written again and again");
    for i in 0..500 {
        course.model.remove(Kind::Pod, &key(&format!("p{i}")));
    }
    course.step(3);
    assert!(
        course.model.get(Kind::Endpoints, "web")["metadata"]["annotations"]["endpoints.kubernetes.io/over-capacity"]
            .is_null()
    );
    assert_eq!(conditions(&course.model).len(), 505);
}
