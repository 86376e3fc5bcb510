//! Session affinity: clients that return to the same pod.

use std::time::Duration;

use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::json;

use super::{address, answered_by, client, fetch, server, service};

/// Name of the pod that answers; retries until one does.
fn answer(node: &EdgeNode, url: &str) -> String {
    until(Duration::from_secs(15), &format!("{url} answers"), || fetch(node, "client", url))
}

#[test]
fn s10_affinity_holds_for_its_time_whatever_happens_to_others() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("services-affinity");
    let mut node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    let sticky = |seconds: u32| {
        let config = json!({"clientIP": {"timeoutSeconds": seconds}});
        json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": config})
    };
    let pods = ["a", "b", "c"];
    kubectl.apply_all(&[
        service("long", "web", &sticky(600)),
        service("brief", "web", &sticky(1)),
        client("client", &on),
    ]);
    kubectl.apply_all(&pods.map(|name| server(name, &on, "web")));
    ["client", "a", "b", "c"].iter().for_each(|pod| drop(kubectl.wait_ready(pod)));
    let url = |service: &str| format!("http://{}:80/", address(kubectl, service));
    let (long, brief) = (url("long"), url("brief"));

    // After the timeout any pod may answer.
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..12 {
        seen.push(answer(&node, &brief));
        if seen.iter().any(|name| *name != seen[0]) {
            break;
        }
        std::thread::sleep(Duration::from_secs(2));
    }
    assert!(seen.iter().any(|name| *name != seen[0]), "a time of one second never ends: {seen:?}");

    let mine = answer(&node, &long);
    answered_by(&node, "client", &long, &[&mine]);
    let other = pods.into_iter().find(|name| *name != mine).expect("there are three");
    node.edge_ok(&["exec", other, "--", "rm", "/tmp/ready"]);
    until(Duration::from_secs(15), "the other one is not ready", || {
        let ready =
            kubectl.ok(&["get", "pod", other, "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}"]);
        if ready == "False" { Ok(()) } else { Err(ready) }
    });
    answered_by(&node, "client", &long, &[&mine]);
    node.edge_ok(&["exec", other, "--", "touch", "/tmp/ready"]);
    kubectl.apply_all(&[server("d", &on, "web")]);
    ["d", other].iter().for_each(|pod| drop(kubectl.wait_ready(pod)));
    answered_by(&node, "client", &long, &[&mine]);
    node.kill();
    node.start();
    until(Duration::from_secs(20), "the daemon knows its pods", || node.edge(&["ps"]));
    answered_by(&node, "client", &long, &[&mine]);

    // A removed endpoint loses its clients.
    node.edge_ok(&["exec", &mine, "--", "rm", "/tmp/ready"]);
    let next = until(Duration::from_secs(15), "another one answers", || match fetch(&node, "client", &long)? {
        name if name == mine => Err(name),
        name => Ok(name),
    });
    answered_by(&node, "client", &long, &[&next]);
}
