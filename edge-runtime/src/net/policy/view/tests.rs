//! Policies as the bridge sends them.

use super::*;
use serde_json::json;

fn read(spec: Value) -> Policy {
    Policy::read(&json!({ "kind": POLICY_VIEW, "spec": spec }))
}

#[test]
fn omitted_fields_stay_absent() {
    let peer = json!({"id": "x", "namespaces": ["a"], "podSelector": {"matchLabels": {"a": "b"}}});
    let policy = read(json!({"podSelector": {}, "ingress": [{"ports": [{"port": "http"}], "peers": [peer]}, {}]}));
    let ingress = policy.ingress.unwrap();
    assert!(policy.egress.is_none() && policy.unreadable.is_none());
    assert_eq!(ingress[1], Rule::default());
    assert!(matches!(&ingress[0].peers.as_deref(), Some([Peer::Pods(peer)]) if peer.id == "x"));
    assert_eq!(ingress[0].ports.as_ref().unwrap()[0].port, Some(TargetPort::Name("http".into())));
    let all = read(json!({"podSelector": {}, "ingress": [{"peers": []}]})).ingress.unwrap();
    assert_eq!(all[0].peers, Some(Vec::new()), "nobody, not everybody");
}

#[test]
fn a_policy_that_is_not_understood_isolates_its_pods() {
    let rule = |rule: Value| json!({"podSelector": {"matchLabels": {"a": "b"}}, "ingress": [rule]});
    let wrong = [
        rule(json!({"peers": [{}]})),
        rule(json!({"peers": [{"cidr": "10.0.0.0/8", "id": "x"}]})),
        rule(json!({"peers": [{"cidr": "here"}]})),
        rule(json!({"peers": [{"cidr": "10.0.0.0/8", "except": ["all"]}]})),
        rule(json!({"peers": [{"cidr": 7}]})),
        rule(json!({"peers": [{"id": "x", "podSelector": {"matchLabels": 7}}]})),
        rule(json!({"peers": {}})),
        rule(json!({"ports": [{"port": 70_000}]})),
        rule(json!({"ports": [{"port": {}}]})),
        rule(json!({"ports": [{"portal": 1}]})),
        rule(json!({"until": "tomorrow"})),
        rule(json!([])),
        rule(json!([null, null])),
        rule(json!({"ports": [[]]})),
        rule(json!({"ports": [["TCP", 80, null]]})),
        rule(json!({"peers": [{"id": "x", "podSelector": []}]})),
        rule(json!({"peers": [{"id": "x", "podSelector": {"matchLabels": []}}]})),
        rule(json!({"peers": [{"id": "x", "podSelector": {"matchExpressions": [["a", "Exists", []]]}}]})),
        json!({"podSelector": {"matchLabels": {"a": "b"}}, "ingress": 7}),
        json!({"podSelector": {"matchLabels": {"a": "b"}}, "unreadable": "too large"}),
    ];
    for wrong in wrong {
        let policy = read(wrong.clone());
        assert!(policy.unreadable.is_some(), "{wrong}");
        assert_eq!((policy.ingress, policy.egress), (Some(Vec::new()), Some(Vec::new())), "{wrong}");
        assert!(!policy.pod_selector.selects(&Default::default()), "its own pods alone: {wrong}");
    }
    for wrong in [json!(null), json!([]), json!({}), json!({"podSelector": 7}), json!({"podSelector": {"x": 1}})] {
        let policy = read(wrong.clone());
        assert!(policy.unreadable.is_some() && policy.pod_selector == Selector::default(), "{wrong}");
    }
    assert!(Policy::read(&json!(7)).unreadable.is_some());
    assert!(Peers::read(&json!({"pods": [{"ips": ["x"]}]})).is_err());
}
