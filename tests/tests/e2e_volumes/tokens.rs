//! Service accounts and Services as a pod sees them, and a token that outlives the link.

use std::time::Duration;

use sampan_tests::manifest::{host_path, pod, shell, with, with_spec};
use sampan_tests::{Cluster, can_run, until};
use serde_json::{Value, json};

use crate::{log_until, mounts};

const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn review(cluster: &Cluster, token: &str, audience: &str) -> Value {
    let path = cluster.folder().join("review.json");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token, "audiences": if audience.is_empty() { json!([]) } else { json!([audience]) }}});
    std::fs::write(&path, review.to_string()).expect("a file");
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let answer = cluster.kubectl.ok(&["create", "--raw", reviews, "-f", &path.display().to_string()]);
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    answer["status"].clone()
}

#[test]
fn a_client_in_a_pod_finds_the_api() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("inside");
    // Services of a real API server need kube-proxy, or a network that routes them.
    if cluster.api_address().is_none() {
        return;
    }
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    // The test's API listens on loopback, so the pod uses the host's network; curl and its libraries are the host's.
    let script = format!(
        "cd {ACCOUNT}; /usr/bin/curl -sS --cacert ca.crt -H \"Authorization: Bearer $(cat token)\" -H 'Content-Type: \
         application/json' -d '{{\"apiVersion\": \"authentication.k8s.io/v1\", \"kind\": \"SelfSubjectReview\"}}' \
         https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/apis/authentication.k8s.io/v1/selfsubjectreviews \
         2>&1; echo; echo end; exec sleep 1000"
    );
    let folders = ["/usr", "/lib", "/lib64"].map(std::path::Path::new).into_iter().filter(|path| path.exists());
    let folders: Vec<_> = folders.enumerate().map(|(i, path)| (format!("f{i}"), path)).collect();
    let volumes: Vec<Value> = folders.iter().map(|(name, path)| host_path(name, path)).collect();
    let listed: Vec<(&str, &str)> =
        folders.iter().map(|(name, path)| (name.as_str(), path.to_str().expect("text"))).collect();
    let container = with(shell("c", &script), &mounts(&listed));
    let client = pod("inside", &node.name, json!([container]));
    kubectl.apply_all(&[with_spec(client, &json!({"hostNetwork": true, "volumes": volumes}))]);
    let log = log_until(kubectl, "inside", "end");
    assert!(log.contains(&format!("system:serviceaccount:{}:default", kubectl.namespace)), "{log}");
}

#[test]
fn g26_a_pod_has_its_account_and_keeps_it_offline() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("tokens");
    let mut node = cluster.node("edge");
    let kubectl = cluster.kubectl.clone();
    let _ = kubectl.ok(&["create", "service", "clusterip", "my-web", "--tcp=80:8080"]);
    let service = kubectl.get("service", "my-web").expect("made");
    let address = service["spec"]["clusterIP"].as_str().expect("an address").to_owned();
    // It loops, so that the same text shows a change after a restart of the container.
    let script = format!(
        "cd {ACCOUNT}; cat token; echo; cat namespace; echo; head -1 ca.crt; stat -Lc %a:%u:%g token; \
         stat -Lc %a:%u:%g /mine/vault; cat /mine/vault; echo; echo $KUBERNETES_SERVICE_PORT $MY_WEB_SERVICE_HOST \
         $MY_WEB_PORT; echo end; exec sleep 1000"
    );
    let container = with(shell("c", &script), &mounts(&[("mine", "/mine")]));
    let mine = json!([{"name": "mine", "projected": {"sources": [
        {"serviceAccountToken": {"path": "vault", "audience": "vault", "expirationSeconds": 600}}]}}]);
    let security = json!({"runAsUser": 1000, "fsGroup": 2000});
    let client = with_spec(
        pod("client", &node.name, json!([container])),
        &json!({"volumes": mine, "securityContext": security}),
    );
    kubectl.apply_all(&[client]);
    kubectl.wait_ready("client");
    let log = log_until(&kubectl, "client", "end");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[1], kubectl.namespace);
    assert_eq!(lines[2], "-----BEGIN CERTIFICATE-----");
    assert_eq!((lines[3], lines[4]), ("640:1000:2000", "640:1000:2000"), "{log}");
    let api = cluster.api_address();
    let port = api.map_or(443, |api| api.port());
    assert_eq!(lines[6], format!("{port} {address} tcp://{address}:80"));
    let (token, vault) = (lines[0], lines[5]);
    let status = review(&cluster, token, "");
    assert_eq!(status["authenticated"], true, "{status}");
    assert_eq!(status["user"]["username"], format!("system:serviceaccount:{}:default", kubectl.namespace));
    assert_eq!(review(&cluster, vault, "vault")["authenticated"], true);
    assert_ne!(review(&cluster, vault, "")["authenticated"], true, "of another audience");
    // On a link that is being cut, the first attempt may find no bridge.
    if cluster.proxy.is_none() {
        let events = kubectl.ok(&["get", "events"]);
        assert!(!events.contains("FailedMount"), "the first mount waits for its tokens: {events}");
    }

    // No bridge, and a restarted daemon: containers that start now read the same token.
    let containers = node.restart_offline(&mut cluster);
    let again = until(Duration::from_secs(30), "a second attempt has read its token", || {
        let log = node.edge(&["logs", "client"])?;
        if log.contains(token) && log.lines().any(|line| line == "end") && node.container_pids() != containers {
            Ok(log)
        } else {
            Err(log)
        }
    });
    assert!(again.contains(vault), "{again}");
    cluster.start_bridge();
    let _ = kubectl.ok(&["delete", "pod", "client", "--wait=false"]);
    kubectl.wait_gone("pod", "client", 20);
    // A real API server caches a valid token for ten seconds.
    until(Duration::from_secs(20), "the token ends with its pod", || {
        let status = review(&cluster, token, "");
        if status["authenticated"] == true { Err(status.to_string()) } else { Ok(()) }
    });
}
