//! `hostUsers: false`: root in the pod is an unprivileged user on the node, but owns everything that the pod mounts.

use std::time::Duration;

use sampan_tests::manifest::{container_id, pod, shell, with, with_spec};
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::{Value, json};

const IDS: u32 = 65_536;

/// The user, on the node, of a pod's first process.
fn host_user(node: &EdgeNode, pod: &Value) -> u32 {
    let id = container_id(&pod["status"]["containerStatuses"][0]);
    let pid = node.container_pids()[&id];
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("its users");
    line.split_whitespace().next().and_then(|uid| uid.parse().ok()).expect("a number")
}

const LOOK: &str = "id -u; cat /cm/key /secret/key /hot/key; ls -ln /secret/..data/key /cold | awk '{print $1, $3, $4}'; \
    echo mine > /cold/file; echo mine > /memory/file; echo mine > /root-file; \
    ls -n /cold/file /memory/file /root-file /etc/hosts /etc/hostname /bin/busybox | awk '{print $3, $4}'; \
    echo '1.2.3.4 added' >> /etc/hosts; echo bye > /dev/termination-log; grep NSpid /proc/self/status; \
    cat /proc/self/uid_map; echo done; exec sleep 1000";

#[test]
fn root_in_a_pod_is_nobody_on_the_node() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("users");
    let mut node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let object = kubectl.get("node", &node.name).expect("the node");
    if object["status"]["runtimeHandlers"][0]["features"]["userNamespaces"] != true {
        panic!("the host cannot: {}", node.log());
    }
    let volumes = json!([
        {"name": "cm", "configMap": {"name": "data"}},
        {"name": "secret", "secret": {"secretName": "data", "defaultMode": 0o400}},
        {"name": "hot", "projected": {"sources": [{"configMap": {"name": "data"}}]}},
        {"name": "cold", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
    ]);
    let mounts = json!([
        {"name": "cm", "mountPath": "/cm"}, {"name": "secret", "mountPath": "/secret", "readOnly": true},
        {"name": "hot", "mountPath": "/hot"}, {"name": "cold", "mountPath": "/cold", "subPath": "deep"},
        {"name": "memory", "mountPath": "/memory"},
    ]);
    let own = json!({"hostUsers": false, "volumes": volumes, "terminationGracePeriodSeconds": 0});
    let container = |script| with(shell("c", script), &json!({"volumeMounts": mounts}));
    let user = json!({"shareProcessNamespace": true, "securityContext": {"runAsUser": 1000, "fsGroup": 2000}});
    let proc = json!({"securityContext": {"procMount": "Unmasked"}});
    let sharing = "id -u; echo mine > /cold/file; ls -n /cold/file | awk '{print $3, $4}'; exec sleep 1000";
    kubectl.apply_all(&[
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "data"}, "data": {"key": "from-config\n"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "data"}, "stringData": {"key": "from-secret\n"}}),
        with_spec(pod("root", &node.name, json!([container(LOOK)])), &own),
        with_spec(with_spec(pod("shared", &node.name, json!([with(container(sharing), &proc)])), &own), &user),
    ]);

    kubectl.wait_pod("root", 40, "runs", |pod| pod["status"]["phase"] == "Running");
    let log = kubectl.wait_log("root", "done");
    let lines: Vec<&str> = log.lines().map(str::trim).collect();
    assert_eq!(&lines[..4], ["0", "from-config", "from-secret", "from-config"], "{log}");
    assert!(lines.contains(&"-r-------- 0 0"), "{log}");
    assert_eq!(
        lines.iter().filter(|line| **line == "0 0").count(),
        6,
        "files of the pod, the node and the image: {log}"
    );
    let root = kubectl.wait_ready("root");
    let first = host_user(&node, &root);
    assert!(first >= IDS && first.is_multiple_of(IDS), "{first}");
    assert!(lines.iter().any(|line| line.split_whitespace().eq(["0", first.to_string().as_str(), "65536"])), "{log}");
    assert!(kubectl.ok(&["exec", "root", "--", "cat", "/etc/hosts"]).contains("added"));
    assert_eq!(kubectl.ok(&["exec", "root", "--", "id", "-u"]).trim(), "0");
    // Its files in a volume belong to root there: another pod may get the same ids later.
    let uid = root["metadata"]["uid"].as_str().unwrap_or_default();
    let volume = node.root().join("var/lib/edge-runtime/pods").join(uid);
    assert_eq!(std::fs::read_to_string(volume.join("userns")).expect("its ids").trim(), first.to_string());

    let shared = kubectl.wait_ready("shared");
    assert_eq!(kubectl.wait_log("shared", "2000"), "1000\n1000 2000\n");
    let other = host_user(&node, &shared) - 1000;
    assert!(other >= IDS && other.is_multiple_of(IDS) && other != first, "{other} beside {first}");

    // A restarted daemon uses the same ids.
    node.kill();
    node.start();
    node.wait_connected(&cluster);
    let again = kubectl.wait_ready("root");
    assert_eq!(host_user(&node, &again), first);
    assert_eq!(kubectl.ok(&["exec", "root", "--", "cat", "/cold/file"]), "mine\n");
    assert!(kubectl.ok(&["delete", "pod", "root", "shared", "--wait=false"]).contains("root"));
    for pod in ["root", "shared"] {
        kubectl.wait_gone("pod", pod, 30);
    }
    node.wait_no_container();
    let below = format!("{}/", node.root().display());
    until(Duration::from_secs(15), "no mount of a pod is left", || {
        let mounts = std::fs::read_to_string("/proc/self/mounts").map_err(|error| error.to_string())?;
        let left = mounts.lines().find(|line| line.contains(&below) && !line.contains("/run/edge-runtime tmpfs"));
        left.map_or(Ok(()), |line| Err(line.to_owned()))
    });
}

/// A helper maps them, because only a helper inspects foreign paths.
#[test]
fn a_host_path_and_a_folder_in_it_look_through_the_pods_users() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("hostusers");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let folder = cluster.folder().join("shared");
    std::fs::create_dir_all(folder.join("deep")).expect("a folder");
    let mounts = json!([
        {"name": "h", "mountPath": "/h"},
        {"name": "h", "mountPath": "/d", "subPath": "deep"},
    ]);
    let script = "echo one >/h/file; echo two >/d/file; stat -c 'owner %u' /h/file /d/file; exec sleep 1000";
    let wanted = pod("p", &node.name, json!([with(shell("c", script), &json!({"volumeMounts": mounts}))]));
    let volumes = json!([sampan_tests::manifest::host_path("h", &folder)]);
    kubectl.apply_all(&[with_spec(wanted, &json!({"hostUsers": false, "volumes": volumes}))]);
    kubectl.wait_ready("p");
    kubectl.wait_log("p", "owner 0\nowner 0\n");
    for (file, text) in [("file", "one\n"), ("deep/file", "two\n")] {
        let meta = std::fs::metadata(folder.join(file)).expect("the pod wrote it");
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&meta), 0, "{file}: as on a mapped mount");
        assert_eq!(std::fs::read_to_string(folder.join(file)).as_deref().unwrap_or_default(), text);
    }
}
