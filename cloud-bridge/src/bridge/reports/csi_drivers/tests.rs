//! Drivers of honest and of hostile nodes.

use super::*;

fn driver(name: &str) -> Value {
    json!({"name": name, "nodeID": "n", "labels": {format!("{name}/zone"): "a"}, "allocatable": {"count": 8}})
}

fn read(reported: &Value) -> Drivers {
    Drivers::read(reported, &json!({}))
}

fn names(drivers: &Drivers) -> Vec<&str> {
    drivers.entries.keys().map(String::as_str).collect()
}

#[test]
fn drivers_are_written_as_the_kubelet_does() {
    let drivers = read(&json!([driver("b.example.com"), {"name": "A.example.com", "nodeID": "x"}]));
    assert_eq!(drivers.problems, [""; 0]);
    let a = json!({"name": "A.example.com", "nodeID": "x", "topologyKeys": []});
    let b = json!({"name": "b.example.com", "nodeID": "n", "topologyKeys": ["b.example.com/zone"],
        "allocatable": {"count": 8}});
    assert_eq!(drivers.plan(None, "u"), Plan::Create(vec![a, b]));
    let ids = json!({"A.example.com": "x", "b.example.com": "n"}).to_string();
    let patch = json!({"metadata": {"labels": {"b.example.com/zone": "a"}, "annotations": {NODE_IDS: ids}}});
    assert_eq!(drivers.metadata(&json!({"metadata": {"labels": {"site": "s"}}})), Some(patch.clone()));
    assert_eq!(drivers.metadata(&patch), None, "it has both");
    assert_eq!(read(&json!([])).metadata(&patch).unwrap()["metadata"]["annotations"], json!({NODE_IDS: null}));
    assert_eq!(read(&json!([])).metadata(&json!({})), None);
    let many = read(&json!([{"name": "d", "nodeID": "n", "allocatable": {"count": u64::MAX}}]));
    assert_eq!(many.entries["d"]["allocatable"]["count"], i32::MAX);
    let none = read(&json!([{"name": "d", "nodeID": "n", "allocatable": {"count": 0}}]));
    assert_eq!(none.entries["d"].get("allocatable"), None, "no limit");
}

#[test]
fn g27_driver_that_breaks_a_rule_is_left_out_alone() {
    let topology = |key: &str, value: Value| json!({"name": "d", "nodeID": "n", "labels": {key: value}});
    let many: Map<String, Value> = (0..=MOST_KEYS).map(|at| (format!("d/{at}"), "x".into())).collect();
    for odd in [
        json!({}),
        json!({"name": 1, "nodeID": "n"}),
        json!({"name": "", "nodeID": "n"}),
        json!({"name": "../d", "nodeID": "n"}),
        json!({"name": "d/e", "nodeID": "n"}),
        json!({"name": "d\n", "nodeID": "n"}),
        json!({"name": "d".repeat(64), "nodeID": "n"}),
        json!({"name": "good", "nodeID": "another"}),
        json!({"name": "d"}),
        json!({"name": "d", "nodeID": "n".repeat(LONGEST_ID + 1)}),
        json!({"name": "d", "nodeID": "a\u{1b}[2J"}),
        json!({"name": "d", "nodeID": "n", "labels": []}),
        json!({"name": "d", "nodeID": "n", "labels": many}),
        topology("node-restriction.kubernetes.io/zone", "vault".into()),
        topology("node-role.kubernetes.io/control-plane", "".into()),
        topology("a.k8s.io/x", "y".into()),
        topology("d/zone", "no label".into()),
        topology("d/zone", 1.into()),
        topology(&"k".repeat(400), "x".into()),
        topology("d/zone", "x".repeat(64).into()),
        topology("good/zone", "of another driver".into()),
        topology("good/zone", "b".into()),
        topology("site", "another".into()),
    ] {
        let node = json!({"metadata": {"labels": {"site": "hall"}}});
        let drivers = Drivers::read(&json!([driver("good"), odd]), &node);
        assert_eq!(names(&drivers), ["good"], "{odd}");
        assert_eq!(drivers.labels, BTreeMap::from([("good/zone".to_owned(), "a".to_owned())]), "{odd}");
        assert!(drivers.problems.len() == 1 && drivers.problems[0].len() < 1_000, "{:?}", drivers.problems);
    }
    let zone = json!([topology("topology.kubernetes.io/zone", "a".into())]);
    assert_eq!(names(&read(&zone)), ["d"], "a node may set this label");
}

/// A node that reports other drivers all the time.
#[test]
fn g17_topology_does_not_fill_the_node_with_labels() {
    let labels: Map<String, Value> = (0..MOST_LABELS).map(|at| (format!("old/{at}"), "x".into())).collect();
    let mut node = json!({"metadata": {"labels": labels}});
    let drivers = Drivers::read(&json!([driver("d"), {"name": "e", "nodeID": "n"}]), &node);
    assert_eq!((names(&drivers), drivers.problems.len()), (vec!["e"], 1));
    node.set_at(&["metadata", "labels", "d/zone"], "a".into());
    assert_eq!(names(&Drivers::read(&json!([driver("d")]), &node)), ["d"], "it is there");
}

#[test]
fn changed_driver_is_taken_away_before_it_is_added() {
    let held = |drivers: Value| json!({"metadata": {"ownerReferences": [{"uid": "u"}]}, "spec": {"drivers": drivers}});
    let entry = |name: &str, id: &str| json!({"name": name, "nodeID": id, "topologyKeys": null});
    let wanted = read(&json!([{"name": "a", "nodeID": "1"}, {"name": "b", "nodeID": "2"}]));
    let all: Vec<Value> = wanted.entries.values().cloned().collect();
    // Those that stay are written as they are.
    let with_a = vec![entry("a", "1"), all[1].clone()];
    let plan = |drivers: Value| wanted.plan(Some(&held(drivers)), "u");
    assert_eq!(plan(json!([entry("b", "2"), entry("a", "1")])), Plan::Nothing);
    assert_eq!(plan(json!(null)), Plan::Update(vec![all]));
    assert_eq!(plan(json!([entry("a", "1")])), Plan::Update(vec![with_a.clone()]));
    let fewer = plan(json!([entry("a", "1"), entry("b", "2"), entry("c", "3")]));
    assert_eq!(fewer, Plan::Update(vec![vec![entry("a", "1"), entry("b", "2")]]));
    let changed = plan(json!([entry("a", "1"), entry("b", "old")]));
    assert_eq!(changed, Plan::Update(vec![vec![entry("a", "1")], with_a]));
    assert_eq!(wanted.plan(Some(&held(json!([]))), "a later one"), Plan::Replace);
    assert_eq!(read(&json!([])).plan(Some(&held(json!([]))), "u"), Plan::Delete);
    assert_eq!(read(&json!([])).plan(None, "u"), Plan::Nothing);
}

#[test]
fn csi_node_of_any_shape_is_replaced() {
    let wanted = read(&json!([driver("d")]));
    for odd in [json!(1), json!([]), json!({"spec": 1, "metadata": []}), json!({"spec": {"drivers": [1, "x", null]}})] {
        assert_eq!(wanted.plan(Some(&odd), "u"), Plan::Replace, "{odd}");
    }
    assert!(read(&json!("x")).entries.is_empty());
}
