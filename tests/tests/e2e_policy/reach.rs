//! Reachability between pods.

use std::time::Duration;

use sampan_tests::manifest::{shell, with};
use sampan_tests::{Cluster, EdgeNode, Kubectl, can_run, get, until};
use serde_json::json;

use super::{bridge, client, ip, policy, reaches, server, tables, wait_reaches};

#[test]
fn ingress_is_what_policies_say_by_pods_ports_and_services() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("policy-in");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"type": "NodePort",
        "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}});
    kubectl.apply_all(&[
        server("web", &on, "web"),
        client("friend", &on, "friend"),
        client("stranger", &on, "stranger"),
        service,
    ]);
    let web = ip(kubectl, "web");
    ["friend", "stranger"].iter().for_each(|pod| drop(kubectl.wait_ready(pod)));
    let bridge = bridge(&web);
    let [http, other] = [8080, 8081].map(|port| format!("http://{web}:{port}/"));
    let field = |path: &str| kubectl.ok(&["get", "service", "web", "-o", &format!("jsonpath={{{path}}}")]);
    let by_service = format!("http://{}/", field(".spec.clusterIP"));
    let host = kubectl.wait_ready("web")["status"]["hostIP"].as_str().expect("has one").to_owned();
    let by_node_port = format!("http://{host}:{}/", field(".spec.ports[0].nodePort"));
    for url in [&http, &other, &by_service, &by_node_port] {
        wait_reaches(&node, "stranger", url, true);
    }
    assert_eq!(tables(&bridge), "", "without a policy there is nothing");

    kubectl.apply_all(&[policy("deny", "", &json!({"policyTypes": ["Ingress"]}))]);
    for url in [&http, &by_service, &by_node_port] {
        wait_reaches(&node, "friend", url, false);
    }
    // The node itself may connect, and a pod may reach itself through its Service.
    let body =
        until(Duration::from_secs(10), "the node reaches its pod", || get(format!("{web}:8080").parse().expect("one")));
    assert_eq!(body, "web\n");
    wait_reaches(&node, "web", &by_service, true);

    let friends = json!({"ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}], "ports": [{"port": "http"}]}]});
    kubectl.apply_all(&[policy("friends", "web", &friends)]);
    for url in [&http, &by_service, &by_node_port] {
        wait_reaches(&node, "friend", url, true);
        assert_eq!(reaches(&node, "stranger", url), Ok(false));
    }
    assert_eq!(reaches(&node, "friend", &other), Ok(false), "another port");
    let _ = kubectl.ok(&["label", "pod", "stranger", "app=friend", "--overwrite"]);
    wait_reaches(&node, "stranger", &http, true);
    let _ = kubectl.ok(&["label", "pod", "stranger", "app=stranger", "--overwrite"]);
    wait_reaches(&node, "stranger", &http, false);
    let ranges = json!({"ingress": [{"ports": [{"port": 8000, "endPort": 8100}]}]});
    kubectl.apply_all(&[policy("ranges", "web", &ranges)]);
    wait_reaches(&node, "stranger", &other, true);

    // The node could probe it all the time.
    let restarts = kubectl.wait_ready("web")["status"]["containerStatuses"][0]["restartCount"].clone();
    assert_eq!(restarts, 0);
    let _ = kubectl.ok(&["delete", "networkpolicy", "--all"]);
    wait_reaches(&node, "stranger", &http, true);
    until(Duration::from_secs(10), "the tables are gone", || match tables(&bridge) {
        none if none.is_empty() => Ok(()),
        some => Err(some),
    });
}

#[test]
fn peers_of_other_namespaces_are_known_by_their_labels() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("policy-ns");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    let other = Kubectl::new(&kubectl.kubeconfig, &format!("{}-other", kubectl.namespace));
    let _ = kubectl.ok(&["create", "namespace", &other.namespace]);
    other.apply_all(&[server("far", &on, "web")]);
    kubectl.apply_all(&[server("web", &on, "web"), client("near", &on, "friend")]);
    let (web, far, _) = (ip(kubectl, "web"), ip(&other, "far"), kubectl.wait_ready("near"));
    let url = format!("http://{web}:8080/");
    // A port name that no other pod of the node has.
    let from_far = |wanted: bool| wait_reaches(&node, "far", &url, wanted);
    from_far(true);
    let team =
        json!({"namespaceSelector": {"matchLabels": {"team": "a"}}, "podSelector": {"matchLabels": {"app": "web"}}});
    kubectl.apply_all(&[policy("team", "web", &json!({"ingress": [{"from": [team]}]}))]);
    wait_reaches(&node, "near", &url, false);
    from_far(false);
    let _ = kubectl.ok(&["label", "namespace", &other.namespace, "team=a"]);
    from_far(true);
    let _ = kubectl.ok(&["label", "namespace", &other.namespace, "team-"]);
    from_far(false);
    // A policy applies only to its own namespace.
    wait_reaches(&node, "near", &format!("http://{far}:8080/"), true);
    let _ = kubectl.ok(&["delete", "namespace", &other.namespace, "--wait=false"]);
}

#[test]
fn egress_is_what_policies_say_and_the_node_answers_for_names() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("policy-out");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    kubectl.apply_all(&[server("web", &on, "web"), server("db", &on, "db"), client("client", &on, "client")]);
    let (web, db, _) = (ip(kubectl, "web"), ip(kubectl, "db"), kubectl.wait_ready("client"));
    let [web, db] = [web, db].map(|ip| format!("http://{ip}:8080/"));
    wait_reaches(&node, "client", &web, true);
    kubectl.apply_all(&[policy("deny", "client", &json!({"policyTypes": ["Egress"]}))]);
    wait_reaches(&node, "client", &web, false);
    let said = node.edge_ok(&[
        "exec",
        "client",
        "--",
        "sh",
        "-c",
        "timeout 5 nslookup kubernetes.default.svc.cluster.local 2>&1; true",
    ]);
    assert!(said.contains("Address") && !said.contains("timed out"), "{said}");
    wait_reaches(&node, "web", &db, true);
    let to = json!({"policyTypes": ["Egress"], "egress": [{"ports": [{"port": "http"}], "to": [{"podSelector": {"matchLabels": {"app": "db"}}}]}]});
    kubectl.apply_all(&[policy("db", "client", &to)]);
    wait_reaches(&node, "client", &db, true);
    assert_eq!(reaches(&node, "client", &web), Ok(false));
    let block = web.trim_start_matches("http://").split(':').next().expect("one");
    let to = json!({"policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": {"cidr": format!("{block}/32")}}]}]});
    kubectl.apply_all(&[policy("block", "client", &to)]);
    wait_reaches(&node, "client", &web, true);
    let all = json!({"policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": [format!("{block}/32")]}}]}]});
    kubectl.apply_all(&[policy("block", "client", &all)]);
    wait_reaches(&node, "client", &web, false);
}

#[test]
fn a_neighbour_does_not_go_around_the_node() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("policy-around");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    // It may change its routes: its neighbour is on the same link.
    let admin = json!({"securityContext": {"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}}});
    let mut around = client("around", &on, "around");
    around["spec"]["containers"] = json!([with(shell("c", "exec sleep 10000"), &admin)]);
    kubectl.apply_all(&[server("web", &on, "web"), around, client("friend", &on, "friend")]);
    let (web, friend, _) = (ip(kubectl, "web"), ip(kubectl, "friend"), kubectl.wait_ready("around"));
    let url = format!("http://{web}:8080/");
    node.edge_ok(&["exec", "around", "--", "ip", "route", "add", &format!("{web}/32"), "dev", "eth0"]);
    wait_reaches(&node, "around", &url, true);
    let friends = json!({"ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}]}]});
    kubectl.apply_all(&[policy("friends", "web", &friends)]);
    wait_reaches(&node, "friend", &url, true);
    wait_reaches(&node, "around", &url, false);
    node.edge_ok(&["exec", "around", "--", "ip", "route", "del", &format!("{web}/32"), "dev", "eth0"]);
    wait_reaches(&node, "around", &url, false);
    // A pod that forges an allowed address is blocked: its packets are dropped at its interface.
    node.edge_ok(&["exec", "around", "--", "ip", "addr", "add", &format!("{friend}/32"), "dev", "eth0"]);
    let as_friend = |from: &str| {
        let script = format!(
            "ip route replace {web}/32 via $(ip route | sed -n 's/^default via \\([^ ]*\\).*/\\1/p') dev eth0 onlink src {from}; timeout 1 wget -qO- {url} >/dev/null 2>&1 && echo yes || echo no"
        );
        node.edge(&["exec", "around", "--", "sh", "-c", &script])
    };
    assert_eq!(as_friend(&friend).map(|said| said.trim().to_owned()), Ok("no".to_owned()));
    wait_reaches(&node, "friend", &url, true);
}

#[test]
fn a_node_whose_policies_are_off_lets_all_in() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("policy-off");
    let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
    node.configure("network: {policies: false}\n");
    node.start();
    node.wait_ready();
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    kubectl.apply_all(&[policy("deny", "", &json!({})), server("web", &on, "web"), client("client", &on, "client")]);
    let (web, _) = (ip(kubectl, "web"), kubectl.wait_ready("client"));
    wait_reaches(&node, "client", &format!("http://{web}:8080/"), true);
    assert_eq!(tables(&bridge(&web)), "");
}
