//! Mappers only from pods of some namespaces: the kernel says which process calls, the daemon which pod it belongs to.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sampan_tests::node::BUSYBOX;
use sampan_tests::wait::until;
use sampan_tests::{Cluster, EdgeNode, can_run};
use serde_json::{Value, json};

use super::{device, install, model};

/// A mapper that registers, as a process of this cgroup if one is given.
fn mapper(folder: &Path, cgroup: Option<&Path>) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../edge-runtime/devices/tests/dmi_mapper.py");
    let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/../.cache/grpcio");
    let packages = std::env::var_os("SAMPAN_GRPCIO").map_or_else(|| packages.into(), PathBuf::from);
    let own = Path::new("/dev/null");
    let mut command = Command::new("sh");
    command.args(["-c", r#"echo $$ > "$0" && exec python3 "$@""#]).arg(cgroup.unwrap_or(own)).arg(script);
    // The framework waits a second, which is too short beside other tests.
    command.arg(folder).args(["m", "lab", "0", "20"]);
    command.env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Cgroup of the first process, by which its pod is identified (cgroups(7)).
fn cgroup_of(pid: u32) -> PathBuf {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it runs");
    let found = text.lines().filter(|line| line.contains("pod")).find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let folder = Path::new("/sys/fs/cgroup").join(controllers.trim_start_matches("name="));
        let procs = folder.join(path.trim_start_matches('/')).join("cgroup.procs");
        procs.exists().then_some(procs)
    });
    found.unwrap_or_else(|| panic!("no cgroup of a pod in {text}"))
}

fn refused(folder: &Path, cgroup: Option<&Path>) {
    let output = mapper(folder, cgroup).output().expect("python3 is installed");
    let why = String::from_utf8_lossy(&output.stdout);
    assert!(why.contains("PERMISSION_DENIED"), "{why}");
}

fn mappers(node: &EdgeNode) -> Result<Value, String> {
    let text = node.edge(&["devices", "mappers", "--json"])?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn d15_only_pods_of_allowed_namespaces_are_mappers() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("devices-allowed");
    install(&cluster);
    let folder = cluster.folder().join("kubeedge");
    let mut node = EdgeNode::prepare(&cluster, "edge");
    let allow = |namespace: &str| {
        let dmi = format!("{{folder: '{}', allow-namespaces: ['{namespace}']}}", folder.display());
        format!("device-twin: {{dmi: {dmi}}}\n")
    };
    node.configure(&allow(&cluster.kubectl.namespace));
    node.start();
    node.wait_ready();
    node.import_busybox(&cluster);
    let container = json!({"name": "c", "image": BUSYBOX, "command": ["sleep", "1000"], "imagePullPolicy": "Never"});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "driver"},
        "spec": {"nodeName": node.name, "terminationGracePeriodSeconds": 0, "containers": [container]}});
    cluster.kubectl.apply_all(&[model(), device("t1", &node.name, "ON"), pod]);
    cluster.kubectl.wait_ready("driver");
    until(Duration::from_secs(20), "mappers may register", || {
        folder.join("dmi.sock").exists().then_some(()).ok_or_else(String::new)
    });
    let pid = *node.container_pids().values().next().expect("a container");
    let cgroup = cgroup_of(pid);

    // A process of the node itself is refused; one of the pod is in the right namespace.
    refused(&folder, None);
    let mut driver = Ends(mapper(&folder, Some(&cgroup)).spawn().expect("python3 is installed"));
    let output = driver.0.stdout.take().expect("piped");
    let mut lines = BufReader::new(output).lines();
    let first = lines.next().expect("a line").expect("UTF-8");
    let said: Value = serde_json::from_str(&first).expect("JSON");
    assert!(said["registered"].is_array(), "{said}");
    let uid = cluster.kubectl.get("pod", "driver").expect("it is there")["metadata"]["uid"].clone();
    assert_eq!(mappers(&node).expect("mappers")[0]["pod"], uid);

    // With another namespace, the registration is removed, and no process of the pod may register again.
    node.configure(&allow("elsewhere"));
    node.kill();
    node.start();
    until(Duration::from_secs(20), "no mapper", || match mappers(&node)? {
        Value::Array(none) if none.is_empty() => Ok(()),
        other => Err(other.to_string()),
    });
    drop((driver, lines));
    refused(&folder, Some(&cgroup));
}
