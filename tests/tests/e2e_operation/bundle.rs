//! A support bundle of a node with many secrets contains none of them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::{Value, json};

const BODY: &str = "s3cr3t-body-of-a-Secret";
const REGISTRY: &str = "p4ssw0rd-of-a-registry";
const NODES_REGISTRY: &str = "p4ssw0rd-of-the-node";
const ENVIRONMENT: &str = "v4lue-of-an-environment";
const ARGUMENT: &str = "4rgument-of-a-command";

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        if entry.path().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push((entry.path().display().to_string(), std::fs::read(entry.path()).expect("a file")));
        }
    }
    found
}

#[test]
fn no_secret_is_in_a_bundle() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("bundle");
    let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
    let auth = node.root().join("etc/auth.json");
    std::fs::create_dir_all(auth.parent().expect("a folder")).expect("a folder");
    let login = json!({"auths": {"r.example": {"auth": STANDARD.encode(format!("node:{NODES_REGISTRY}"))}}});
    std::fs::write(&auth, login.to_string()).expect("written");
    node.configure(&format!("pull: {{auth-file: {}}}\n", auth.display()));
    node.start();
    node.wait_ready();
    let (kubectl, on) = (&cluster.kubectl, node.name.clone());
    let docker = json!({"auths": {"r.example": {"username": "bob", "password": REGISTRY, "auth": STANDARD.encode(format!("bob:{REGISTRY}"))}}});
    let secret = |name: &str, kind: &str, data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind, "stringData": data});
    // The probe prints the secret, so its event contains it.
    let container = with(
        shell("c", &format!(": {ARGUMENT}; echo $BODY; exec sleep 1000")),
        &json!({
            "env": [{"name": "BODY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, {"name": "PLAIN", "value": ENVIRONMENT}],
            "volumeMounts": [{"name": "s", "mountPath": "/s"}],
            "livenessProbe": {"exec": {"command": ["sh", "-c", "echo $BODY $PLAIN; exit 1"]}, "periodSeconds": 1, "failureThreshold": 100},
        }),
    );
    let more =
        json!({"volumes": [{"name": "s", "secret": {"secretName": "s"}}], "imagePullSecrets": [{"name": "pull"}]});
    kubectl.apply_all(&[
        secret("s", "Opaque", json!({"k": BODY})),
        secret("pull", "kubernetes.io/dockerconfigjson", json!({".dockerconfigjson": docker.to_string()})),
        with_spec(pod("keeper", &on, json!([container])), &more),
    ]);
    kubectl.wait_ready("keeper");
    until(Duration::from_secs(20), "an event tells the secret", || {
        let events = node.edge(&["events", "--for", "keeper"])?;
        if events.contains(BODY) { Ok(()) } else { Err(events) }
    });
    let state = node.root().join("var/lib/edge-runtime");
    let identity: Value =
        serde_json::from_slice(&std::fs::read(state.join("identity/identity.json")).expect("joined")).expect("JSON");
    let key = identity["key"].as_str().expect("a key").lines().nth(1).expect("a second line").to_owned();
    let token = std::fs::read_dir(state.join("pods")).expect("pods").flatten().find_map(|pod| {
        files(&pod.path()).into_iter().find(|(name, _)| name.ends_with("/token")).map(|(_, bytes)| bytes)
    });
    let bundle = cluster.folder().join("bundle.tar.gz");
    node.edge_ok(&["doctor", "--bundle", &bundle.display().to_string()]);
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&bundle).expect("there").permissions()) & 0o777;
    assert_eq!(mode, 0o600);
    let out = cluster.folder().join("unpacked");
    std::fs::create_dir(&out).expect("a folder");
    let unpacked = Command::new("tar").arg("xzf").arg(&bundle).arg("-C").arg(&out).status().expect("tar starts");
    assert!(unpacked.success());
    let all = files(&out);
    let mut secrets: Vec<String> =
        [BODY, REGISTRY, NODES_REGISTRY, ENVIRONMENT, ARGUMENT, &key].map(str::to_owned).into();
    secrets.push(STANDARD.encode(format!("bob:{REGISTRY}")));
    secrets.push(STANDARD.encode(format!("node:{NODES_REGISTRY}")));
    if let Some(token) = token {
        // Its signature, which must stay secret.
        secrets.push(String::from_utf8_lossy(&token).rsplit('.').next().unwrap_or_default().trim().to_owned());
    }
    secrets.retain(|secret| !secret.is_empty());
    assert!(secrets.len() >= 8);
    for secret in secrets.iter().flat_map(|secret| [secret.clone(), STANDARD.encode(secret)]) {
        for (name, bytes) in &all {
            let is_in = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!is_in, "{secret} is in {name}");
        }
    }
    // The bundle is still useful.
    let text = |name: &str| {
        let file = all
            .iter()
            .find(|(file, _)| file.ends_with(name))
            .unwrap_or_else(|| panic!("{name} in {:?}", all.iter().map(|(name, _)| name).collect::<Vec<_>>()));
        String::from_utf8_lossy(&file.1).into_owned()
    };
    assert!(text("/pods.json").contains("keeper") && text("/pods.json").contains("PLAIN"), "{}", text("/pods.json"));
    assert!(text("/doctor.json").contains("oci-runtime"));
    assert!(text("/metrics.txt").contains("kubelet_running_pods 1"));
    assert!(text("/readyz.txt").contains("[+]loop ok"));
    assert!(text("/events.jsonl").contains("Unhealthy"));
    assert!(text("/node.json").contains(&on));
    assert!(text("/config.yaml").contains("auth-file"));
    assert!(text("/host/proc/version").contains("Linux"));
}
