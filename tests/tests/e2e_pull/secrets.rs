//! A registry with a password: sources of credentials, which pods may use a pulled image, and a tag that changes.

use std::time::Duration;

use sampan_tests::manifest::{container_id, pod, shell, with, with_spec};
use sampan_tests::registry::{archive, tools};
use sampan_tests::{Cluster, EdgeNode, Kubectl, Registry, until};
use serde_json::{Value, json};

use crate::waiting;

fn secret(kubectl: &Kubectl, name: &str, server: &str, password: &str) {
    let (server, password) = (format!("--docker-server={server}"), format!("--docker-password={password}"));
    let _ = kubectl.ok(&[
        "create",
        "secret",
        "docker-registry",
        name,
        &server,
        "--docker-username=user",
        &password,
        "--docker-email=a@b.c",
    ]);
}

fn wait_event(kubectl: &Kubectl, pod: &str, text: &str) {
    until(Duration::from_secs(30), &format!("{pod}: {text}"), || {
        let all = kubectl.run(&["get", "events", "--field-selector", &format!("involvedObject.name={pod}")])?;
        if all.contains(text) { Ok(()) } else { Err(all) }
    });
}

fn image_id(pod: &Value) -> String {
    pod["status"]["containerStatuses"][0]["imageID"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_login_opens_its_images_to_those_who_have_it() {
    if !tools() {
        return;
    }
    let cluster = Cluster::start("login");
    let kubectl = &cluster.kubectl;
    let mut registry = Registry::start(cluster.folder(), true);
    registry.push(&archive(cluster.folder(), "private1"), "tools/private:1");
    let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", kubectl.namespace));
    node.configure(&format!("registry: [{{host: '{}', plain-http: true}}]\n", registry.address));
    node.start();
    node.wait_ready();
    let address = registry.address.to_string();
    secret(kubectl, "right", &address, "secret");
    secret(kubectl, "wrong", &address, "guess");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "puller"},
        "imagePullSecrets": [{"name": "right"}]});
    kubectl.apply_all(&[account]);
    let image = format!("{address}/tools/private:1");
    let puller = |name: &str, policy: &str, secrets: &[&str]| {
        let secrets: Vec<Value> = secrets.iter().map(|name| json!({"name": name})).collect();
        let container = with(shell("c", "exec sleep 1000"), &json!({"image": image, "imagePullPolicy": policy}));
        with_spec(pod(name, &node.name, json!([container])), &json!({"imagePullSecrets": secrets}))
    };

    // A wrong login, and a missing Secret: tried, refused, and reported (K8s pkg/kubelet/images).
    kubectl.apply_all(&[puller("mistaken", "IfNotPresent", &["wrong"]), puller("early", "IfNotPresent", &["late"])]);
    for name in ["mistaken", "early"] {
        let refused = kubectl.wait_pod(name, 20, "is refused", |pod| waiting(pod) == "ImagePullBackOff");
        assert!(refused["status"].to_string().contains("pull access denied"), "{}", refused["status"]);
        wait_event(kubectl, name, "ErrImagePull");
    }
    let text = "Unable to retrieve some image pull secrets (late); attempting to pull the image may not succeed.";
    wait_event(kubectl, "early", text);
    let warnings = ["get", "events", "--field-selector", "reason=FailedToRetrieveImagePullSecret", "-o", "json"];
    let warnings: Value = serde_json::from_str(&kubectl.ok(&warnings)).expect("JSON");
    assert_eq!(warnings["items"][0]["type"], "Warning");
    let others = warnings["items"].as_array().into_iter().flatten();
    assert!(others.into_iter().all(|event| event["involvedObject"]["name"] == "early"), "{warnings}");
    secret(kubectl, "late", &address, "secret");

    // Through the account, and through the pod itself.
    let by_account = puller("by-account", "IfNotPresent", &[]);
    kubectl.apply_all(&[with_spec(by_account, &json!({"serviceAccountName": "puller"}))]);
    let first = image_id(&kubectl.wait_ready("by-account"));
    kubectl.apply_all(&[puller("by-pod", "IfNotPresent", &["wrong", "right"])]);
    kubectl.wait_ready("by-pod");
    wait_event(kubectl, "by-pod", "already present on machine and can be accessed by the pod");

    // The node has the image now, but not every pod may use it.
    kubectl.apply_all(&[puller("stranger", "IfNotPresent", &[]), puller("never", "Never", &["wrong"])]);
    kubectl.wait_pod("stranger", 20, "is refused", |pod| waiting(pod) == "ImagePullBackOff");
    kubectl.wait_pod("never", 20, "is refused", |pod| waiting(pod) == "ErrImageNeverPull");
    // The next attempt finds the Secret.
    kubectl.wait_ready("early");

    // The tag gets another image.
    registry.push(&archive(cluster.folder(), "private2"), "tools/private:1");
    kubectl.apply_all(&[puller("always", "Always", &["right"])]);
    let moved = kubectl.wait_ready("always");
    assert!(image_id(&moved).starts_with(&format!("{address}/tools/private@sha256:")), "{}", moved["status"]);
    assert_ne!(image_id(&moved), first);
    assert_eq!(image_id(&kubectl.get("pod", "by-account").expect("the pod")), first);

    // Without the registry, only authorized pods use the local image.
    registry.stop();
    let id = container_id(&moved["status"]["containerStatuses"][0]);
    sampan_tests::process::signal(node.container_pids()[&id], "KILL");
    kubectl.apply_all(&[puller("offline", "IfNotPresent", &["right"]), puller("beggar", "Always", &["wrong"])]);
    kubectl.wait_ready("offline");
    let again = kubectl.wait_pod("always", 30, "runs again", |pod| {
        pod["status"]["containerStatuses"][0]["restartCount"] == 1 && sampan_tests::kubectl::is_ready(pod)
    });
    assert_eq!(image_id(&again), image_id(&moved));
    wait_event(kubectl, "always", "using the image that is on this node");
    kubectl.wait_pod("beggar", 30, "is refused", |pod| waiting(pod) == "ImagePullBackOff");
}
