//! Tests of `nodes`.

use serde_json::{Value, json};

use super::*;

fn line() -> Line {
    let link = NodeView {
        node: "edge-1".into(),
        connected: false,
        since: None,
        last_seen: Some("2026-03-01T10:00:00Z".into()),
        epoch: 7,
        sequence: 9,
        acked: None,
        objects: 3,
        queue_bytes: 0,
        report_bytes: 12,
        rtt_ms: None,
        no_kubelet_port: false,
    };
    Line { link, known: Known { ready: "True".into(), version: "0.1.0".into(), pods: 4, pods_ready: 3 } }
}

fn cells(form: Option<Form>) -> String {
    let text = printed(&[line()], form, "2026-03-01T10:05:00Z".parse().unwrap()).unwrap();
    text.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn table_shows_the_node_and_wide_adds_the_link() {
    assert_eq!(cells(None), "edge-1 True 0.1.0 3/4 down 5m");
    assert_eq!(cells(Some(Form::Wide)), "edge-1 True 0.1.0 3/4 down 5m - 7 9 - 3 0B 12B -");
}

#[test]
fn other_forms_hold_link_and_node() {
    let text = |form| printed(&[line()], Some(form), Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(text(Form::Name), "node/edge-1\n");
    let json: Value = serde_json::from_str(&text(Form::Json)).unwrap();
    assert_eq!((&json[0]["node"], &json[0]["queueBytes"]), (&json!("edge-1"), &json!(0)));
    assert_eq!((&json[0]["ready"], &json[0]["podsReady"]), (&json!("True"), &json!(3)));
}

#[test]
fn ended_pods_are_not_counted() {
    let node = json!({"status": {
        "conditions": [{"type": "DiskPressure", "status": "True"}, {"type": "Ready", "status": "False"}],
        "nodeInfo": {"kubeletVersion": "v1.36.0-sampan-0.1.0"},
    }});
    let mut known = of_node(&serde_json::from_value(node).unwrap());
    assert_eq!((known.ready.as_str(), known.version.as_str()), ("False", "0.1.0"));
    let ready = json!([{"type": "Ready", "status": "True"}]);
    for status in
        [json!({"phase": "Running", "conditions": ready}), json!({"phase": "Pending"}), json!({"phase": "Failed"})]
    {
        count(&mut known, &serde_json::from_value(json!({"status": status})).unwrap());
    }
    assert_eq!((known.pods, known.pods_ready), (2, 1));
}
