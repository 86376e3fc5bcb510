//! Placing pods: which node, and the words when there is none.

use serde_json::{Value, json};

use super::cluster::{Cluster, Decision, PodKey};

fn node(cluster: &mut Cluster, name: &str, extra: Value) {
    let mut node = json!({"spec": {}, "status": {
        "allocatable": {"cpu": "2", "memory": "1Gi", "pods": "3"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    for (pointer, value) in extra.as_object().into_iter().flatten() {
        if let Some(target) = node.pointer_mut(pointer) {
            *target = value.clone();
        }
    }
    cluster.node(name, json!({"kubernetes.io/hostname": name, "disk": name}), &node);
}

fn key(name: &str) -> PodKey {
    ("default".to_owned(), name.to_owned())
}

fn pod(cluster: &mut Cluster, name: &str, spec: Value) {
    cluster.pod(key(name), name, false, &json!({"spec": spec}));
}

fn cpu(amount: &str) -> Value {
    json!({"containers": [{"resources": {"requests": {"cpu": amount}}}]})
}

fn only(cluster: &mut Cluster) -> Result<String, String> {
    let mut decisions = cluster.decide();
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    match decisions.remove(0) {
        Decision::Bind { node, .. } => Ok(node),
        Decision::Tell { message, .. } => Err(message),
    }
}

#[test]
fn without_nodes_there_is_nothing_to_choose() {
    let mut cluster = Cluster::default();
    pod(&mut cluster, "p", cpu("1"));
    assert_eq!(only(&mut cluster), Err("no nodes available to schedule pods".to_owned()));
    // The same words are not said twice.
    cluster.node_gone("x");
    assert_eq!(cluster.decide(), []);
    node(&mut cluster, "a", json!({}));
    assert_eq!(only(&mut cluster), Ok("a".to_owned()));
}

#[test]
fn the_least_allocated_node_is_preferred() {
    let mut cluster = Cluster::default();
    node(&mut cluster, "a", json!({}));
    node(&mut cluster, "b", json!({}));
    cluster.pod(key("there"), "u", false, &json!({"spec": {"nodeName": "a", "containers": cpu("1")["containers"]}}));
    pod(&mut cluster, "p", cpu("500m"));
    assert_eq!(only(&mut cluster), Ok("b".to_owned()));
}

#[test]
fn reasons_are_counted() {
    let mut cluster = Cluster::default();
    node(&mut cluster, "a", json!({"/spec": {"unschedulable": true}}));
    node(&mut cluster, "b", json!({"/spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}));
    node(&mut cluster, "c", json!({"/status/allocatable/cpu": "100m", "/status/allocatable/pods": "0"}));
    node(&mut cluster, "d", json!({"/status/conditions": []}));
    pod(&mut cluster, "p", cpu("1"));
    let text = "0/4 nodes are available: 1 Insufficient cpu, 1 Too many pods, 1 node(s) were unschedulable, \
                2 node(s) had untolerated taint(s).";
    assert_eq!(only(&mut cluster), Err(text.to_owned()));
}

#[test]
fn tolerations_selectors_and_affinity() {
    let mut cluster = Cluster::default();
    node(&mut cluster, "a", json!({"/spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}}));
    node(&mut cluster, "b", json!({}));
    let mut spec = cpu("1");
    spec["tolerations"] = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
    spec["nodeSelector"] = json!({"disk": "a"});
    pod(&mut cluster, "p", spec);
    assert_eq!(only(&mut cluster), Ok("a".to_owned()));
    let mut spec = cpu("1");
    spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["z"]}]},
                              {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]}}});
    pod(&mut cluster, "q", spec);
    assert_eq!(only(&mut cluster), Ok("b".to_owned()));
    let mut spec = cpu("1");
    spec["nodeSelector"] = json!({"disk": "z"});
    pod(&mut cluster, "r", spec);
    let text = "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, \
                1 node(s) had untolerated taint(s).";
    assert_eq!(only(&mut cluster), Err(text.to_owned()));
}

#[test]
fn room_is_taken_and_given_back() {
    let mut cluster = Cluster::default();
    node(&mut cluster, "a", json!({}));
    let mut spec = cpu("1");
    spec["containers"][0]["ports"] = json!([{"hostPort": 80}]);
    pod(&mut cluster, "p", spec.clone());
    assert_eq!(only(&mut cluster), Ok("a".to_owned()));
    // Old news of a pod just placed changes nothing.
    pod(&mut cluster, "p", spec.clone());
    assert_eq!(cluster.decide(), []);
    pod(&mut cluster, "q", spec);
    let text = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.";
    assert_eq!(only(&mut cluster), Err(text.to_owned()));
    cluster.pod(key("p"), "p", false, &json!({"spec": {"nodeName": "a"}, "status": {"phase": "Succeeded"}}));
    assert_eq!(only(&mut cluster), Ok("a".to_owned()));
}

#[test]
fn pods_of_others_and_pods_on_their_way_out_are_left_alone() {
    let mut cluster = Cluster::default();
    node(&mut cluster, "a", json!({}));
    cluster.decide();
    pod(&mut cluster, "other", json!({"schedulerName": "mine"}));
    pod(&mut cluster, "gated", json!({"schedulingGates": [{"name": "g"}]}));
    cluster.pod(key("leaving"), "u", true, &json!({"spec": {}}));
    assert_eq!(cluster.decide(), []);
}

#[test]
fn a_pod_goes_where_its_volume_is() {
    let mut cluster = Cluster::default();
    node(&mut cluster, "a", json!({}));
    node(&mut cluster, "b", json!({}));
    let mut spec = cpu("1");
    spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    pod(&mut cluster, "p", spec);
    assert_eq!(only(&mut cluster).unwrap_err(), "0/2 nodes are available: persistentvolumeclaim \"data\" not found.");
    let told = |cluster: &mut Cluster| {
        cluster.stir();
        only(cluster)
    };
    assert!(cluster.volumes.claim(key("data"), &json!({"spec": {"volumeName": "pv"}, "status": {"phase": "Pending"}})));
    let unbound = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    assert_eq!(told(&mut cluster).unwrap_err(), unbound);
    let local = |names: Value| {
        let on = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": names});
        json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on]}]}}}})
    };
    assert!(cluster.volumes.volume("pv", &local(json!(["c"]))));
    assert!(cluster.volumes.claim(key("data"), &json!({"spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}})));
    let conflict = "0/2 nodes are available: 2 node(s) had volume node affinity conflict.";
    assert_eq!(told(&mut cluster).unwrap_err(), conflict);
    assert!(cluster.volumes.volume("pv", &local(json!(["b"]))));
    assert_eq!(told(&mut cluster).unwrap(), "b");
}
