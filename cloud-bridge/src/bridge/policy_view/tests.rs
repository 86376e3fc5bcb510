//! Policies as nodes get them.

use super::*;

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

fn namespaces() -> BTreeMap<String, Value> {
    [("shop", json!({"team": "a"})), ("bank", json!({"team": "b"})), ("zoo", json!(null))]
        .map(|(name, labels)| (name.to_owned(), labels))
        .into()
}

fn text(spec: Value) -> PolicyText {
    let policy = object(json!({"metadata": {"name": "p", "namespace": "shop", "uid": "u"}, "spec": spec}));
    policy_view(&policy, &namespaces())
}

fn view(spec: Value) -> Value {
    text(spec).view.unwrap().body["spec"].clone()
}

/// The view of a policy's only peer.
fn peer(from: Value) -> Value {
    view(json!({"podSelector": {}, "ingress": [{"from": [from]}]}))["ingress"][0]["peers"][0].clone()
}

fn pod(namespace: &str, app: &str, node: &str, more: Value) -> PeerPod {
    let mut pod = json!({"metadata": {"name": "p", "namespace": namespace, "labels": {"app": app}},
        "spec": {"nodeName": node, "containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]},
        "status": {"podIPs": [{"ip": "10.86.0.2"}]}});
    more.as_object().into_iter().flatten().for_each(|(key, value)| pod[key] = value.clone());
    PeerPod::of(&object(pod)).unwrap()
}

#[test]
fn types_are_as_kubernetes_takes_them_when_they_are_not_said() {
    let selector = json!({"matchLabels": {"a": "b"}});
    let kept = view(json!({"podSelector": selector}));
    assert_eq!(kept, json!({"podSelector": selector, "ingress": []}));
    let out = json!({"podSelector": {}, "egress": [{"ports": [{"port": 53, "protocol": null}]}]});
    let rule = json!({"ports": [{"port": 53}]});
    assert_eq!(view(out), json!({"podSelector": {}, "ingress": [], "egress": [rule]}));
    let only = view(json!({"podSelector": {}, "policyTypes": ["Egress"], "ingress": [{}]}));
    assert_eq!(only, json!({"podSelector": {}, "egress": []}));
    let all = view(json!({"podSelector": {}, "ingress": [{}, {"from": [], "ports": null}]}));
    assert_eq!(all["ingress"], json!([{}, {}]));
}

#[test]
fn peers_are_pods_of_namespaces_or_ranges() {
    let app = json!({"matchLabels": {"app": "db"}});
    let own = peer(json!({"podSelector": app}));
    assert_eq!((&own["namespaces"], &own["podSelector"]), (&json!(["shop"]), &app));
    let team = json!({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["b"]}]});
    let some = peer(json!({"namespaceSelector": team}));
    assert_eq!((&some["namespaces"], &some["podSelector"]), (&json!(["shop", "zoo"]), &json!({})));
    let both = peer(json!({"namespaceSelector": {"matchLabels": {"team": "b"}}, "podSelector": app}));
    assert_eq!((&both["namespaces"], &both["podSelector"]), (&json!(["bank"]), &app));
    let all = peer(json!({"namespaceSelector": {"matchLabels": {}}}));
    assert!(all.get("namespaces").is_none() && all["podSelector"] == json!({}), "{all}");
    assert_ne!(own["id"], both["id"]);
    let block = json!({"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]});
    assert_eq!(peer(json!({"ipBlock": block})), block);
}

#[test]
fn what_is_not_understood_is_told_as_such() {
    let rule = |rule: Value| json!({"podSelector": {"matchLabels": {"a": "b"}}, "ingress": [rule]});
    let wrong = [
        rule(json!({"from": [{}]})),
        rule(json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]})),
        rule(json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "only": 1}}]})),
        rule(json!({"from": [{"podSelector": {"matchLabels": {"a": 1}}}]})),
        rule(
            json!({"from": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}}]}),
        ),
        rule(json!({"from": [{"podSelector": {"matchFields": []}}]})),
        rule(json!({"from": [{"podSelector": [], "namespaceSelector": {}}]})),
        rule(json!({"from": [{"serviceSelector": {}}]})),
        rule(json!({"from": {}})),
        rule(json!({"ports": [{"portal": 7}]})),
        rule(json!({"ports": [7]})),
        rule(json!({"unless": []})),
        rule(json!(7)),
        json!({"podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Both"]}),
        json!({"podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": "Ingress"}),
        json!({"podSelector": {"matchLabels": {"a": "b"}}, "egress": 7}),
        json!({"podSelector": {"matchLabels": {"a": "b"}}, "priority": 7}),
    ];
    for wrong in wrong {
        let text = text(wrong.clone());
        let spec = &text.view.as_ref().unwrap().body["spec"];
        assert!(spec["unreadable"].is_string() && spec.get("ingress").is_none(), "{wrong}: {spec}");
        assert_eq!(spec["podSelector"], json!({"matchLabels": {"a": "b"}}));
        assert!(text.peers.is_empty());
    }
    for wrong in [json!(null), json!([]), json!("x"), json!({"podSelector": {"matchLabels": []}})] {
        let spec = view(wrong.clone());
        assert!(spec["unreadable"].is_string() && spec.get("podSelector").is_none(), "{wrong}: {spec}");
    }
    let peers: Vec<Value> =
        (0..30_000).map(|n| json!({"podSelector": {"matchLabels": {"n": format!("{n}")}}})).collect();
    let spec = view(json!({"podSelector": {}, "ingress": [{"from": peers}]}));
    assert_eq!(spec["unreadable"], "it is larger than a node takes");
}

#[test]
fn named_ports_on_the_way_out_are_those_of_pods() {
    let rule = json!({"ports": [{"port": "http"}, {"port": 443}]});
    let spec = view(json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [rule]}));
    let rules = spec["egress"].as_array().unwrap();
    assert_eq!(rules[0]["ports"], json!([{"port": "http"}]));
    assert!(rules[0]["peers"][0]["podSelector"] == json!({}) && rules[0]["peers"][0].get("namespaces").is_none());
    assert_eq!(rules[1], json!({"ports": [{"port": 443}]}));
    // For ingress, a port name is that of the selected pod itself.
    let text = text(json!({"podSelector": {}, "ingress": [{"ports": [{"port": "http"}]}]}));
    assert!(text.peers.is_empty());
}

#[test]
fn a_pod_is_told_once_with_all_that_it_is_and_changes_one_portion() {
    let app = |app: &str| json!({"podSelector": {"matchLabels": {"app": app}}});
    let text = text(json!({"podSelector": {}, "ingress": [{"from": [app("db"), {"namespaceSelector": {}}]}]}));
    let of = |pod: &PeerPod| -> Vec<String> {
        text.peers.iter().filter(|(_, peer)| peer.is(pod)).map(|(id, _)| id.clone()).collect()
    };
    let (db, far) = (pod("shop", "db", "n1", json!({})), pod("bank", "db", "n2", json!({})));
    assert_eq!((of(&db).len(), of(&far).len()), (2, 1));
    let pods = [(db.clone(), of(&db)), (far.clone(), of(&far))];
    let views = |named: bool| -> Vec<Object> {
        peer_views("shop", pods.iter().map(|(pod, ids)| (pod, ids.as_slice())), move |_| named).collect()
    };
    let (views, named) = (views(false), views(true));
    assert_eq!(views.len(), 1);
    assert_eq!(views[0].body["pods"][0], json!({"node": "n1", "ips": ["10.86.0.2"], "peers": of(&db)}));
    assert_eq!(named[0].body["pods"][0]["ports"], json!([["http", "TCP", 8080]]));
    // A thousand nodes with ten pods each.
    let ids = vec!["x".to_owned()];
    let site = |without: usize| {
        let pods: Vec<PeerPod> = (0..10_000)
            .filter(|n| *n != without)
            .map(|n| pod("shop", "db", &format!("n{}", n / 10), json!({})))
            .collect();
        peer_views("shop", pods.iter().map(|pod| (pod, ids.as_slice())), |_| false).collect::<Vec<_>>()
    };
    let (before, after) = (site(10_000), site(7));
    let changed = before.iter().zip(&after).filter(|(before, after)| before.digest != after.digest).count();
    // A thousand node names do not cover all of 256 portions.
    assert_eq!((before.len(), after.len(), changed), (251, 251, 1));
    assert!(before.iter().all(|view| view.body.to_string().len() < 20_000));
}

#[test]
fn peers_in_all_namespaces_are_bounded_while_they_are_read() {
    let namespaces: BTreeMap<String, Value> =
        (0..1000).map(|number| (format!("namespace-{number}"), json!({"team": "a"}))).collect();
    let peer = |number: usize| {
        let unlabelled = json!({"key": format!("k{number}"), "operator": "DoesNotExist"});
        let pods = json!({"matchLabels": {"app": number.to_string()}});
        json!({"namespaceSelector": {"matchExpressions": [unlabelled]}, "podSelector": pods})
    };
    let peers: Vec<Value> = (0..5000).map(peer).collect();
    let spec = json!({"podSelector": {"matchLabels": {"a": "b"}}, "ingress": [{"from": peers}]});
    let mut reader = Reader { own: "shop", namespaces: &namespaces, peers: BTreeMap::new(), room: TEXT };
    assert_eq!(reader.spec(&spec).unwrap_err(), TOO_LARGE);
    assert!(reader.peers.len() < 100, "{}", reader.peers.len());
    let policy = object(json!({"metadata": {"name": "p", "namespace": "shop", "uid": "u"}, "spec": spec}));
    let text = policy_view(&policy, &namespaces);
    let told = json!({"unreadable": TOO_LARGE, "podSelector": {"matchLabels": {"a": "b"}}});
    assert_eq!((text.view.unwrap().body["spec"].clone(), text.peers.len()), (told, 0));
}
