//! Fleet jobs on a real node: an upgrade from a registry, one with a rollback, pre-pulled images, values of the
//! configuration.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sampan_tests::ports::free_address;
use sampan_tests::process::Process;
use sampan_tests::{Cluster, can_run, until};
use serde_json::{Value, json};

use super::installed::{Bundle, Installed};
use super::set_up;

/// A registry on loopback.
struct Registry {
    address: String,
    _process: Process,
}

impl Registry {
    fn start(folder: &Path) -> Self {
        let address = free_address();
        let config = json!({"version": 0.1, "log": {"level": "warn"}, "http": {"addr": address.to_string()},
            "storage": {"filesystem": {"rootdirectory": folder.join("registry")}}});
        std::fs::write(folder.join("registry.yml"), config.to_string()).expect("written");
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(folder.join("registry.yml"));
        let process = Process::start(&mut command, &folder.join("registry.log"));
        until(Duration::from_secs(15), "the registry listens", || {
            std::net::TcpStream::connect(address).map(drop).map_err(|error| error.to_string())
        });
        Self { address: address.to_string(), _process: process }
    }

    /// Pushes an archive; the digest of its manifest.
    fn push(&self, archive: &Path, name: &str) -> String {
        let to = format!("docker://{}/{name}", self.address);
        let mut command = Command::new("skopeo");
        command.args(["copy", "-q", "--insecure-policy", "--dest-tls-verify=false"]);
        let output = command.arg(format!("docker-archive:{}", archive.display())).arg(&to).output().expect("starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut look = Command::new("skopeo");
        look.args(["inspect", "--tls-verify=false", "--format", "{{.Digest}}", &to]);
        String::from_utf8_lossy(&look.output().expect("starts").stdout).trim().to_owned()
    }
}

/// A docker archive with the files of a bundle at the top of its one layer.
fn image(folder: &Path, bundle: &Bundle, name: &str) -> PathBuf {
    let files = folder.join(format!("image-{name}"));
    std::fs::create_dir_all(&files).expect("a folder");
    let layer = files.join("layer.tar");
    std::fs::copy(bundle.path(), &layer).expect("copied");
    let sum = super::installed::sha256(&layer);
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let config = json!({"architecture": architecture, "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{sum}")]}, "history": []});
    std::fs::write(files.join("config.json"), config.to_string()).expect("written");
    let manifest = json!([{"Config": "config.json", "RepoTags": [format!("{name}:1")], "Layers": ["layer.tar"]}]);
    std::fs::write(files.join("manifest.json"), manifest.to_string()).expect("written");
    let archive = folder.join(format!("{name}.image.tar"));
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&files).arg("-cf").arg(&archive).args(["manifest.json", "config.json", "layer.tar"]);
    assert!(tar.status().expect("tar starts").success());
    archive
}

fn wait_phase(cluster: &Cluster, kind: &str, name: &str, phase: &str) -> Value {
    until(Duration::from_secs(120), &format!("{kind} {name} is {phase}"), || {
        let job = cluster.kubectl.get(kind, name)?;
        match job["status"]["phase"] == phase {
            true => Ok(job),
            false => Err(job["status"].to_string()),
        }
    })
}

fn node_status(job: &Value) -> &Value {
    &job["status"]["nodeStatus"][0]
}

fn architecture() -> &'static str {
    if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" }
}

fn upgrade_job(name: &str, node: &str, image: &str, digest: &str, version: &str) -> Value {
    json!({"apiVersion": "operations.kubeedge.io/v1alpha2", "kind": "NodeUpgradeJob", "metadata": {"name": name},
        "spec": {"version": version, "image": image, "imageDigestGatter": {architecture(): digest},
            "nodeNames": [node], "checkItems": ["disk"]}})
}

#[test]
fn s18_jobs_upgrade_nodes_and_roll_back_bad_configurations() {
    if !can_run() || Command::new("docker-registry").arg("--version").output().is_err() {
        return;
    }
    let cluster = Cluster::start("job");
    let definitions = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/bridge/operations/crds.yaml");
    let _ = cluster.kubectl.ok(&["apply", "-f", definitions]);
    let registry = Registry::start(cluster.folder());
    let (node, installed): (_, Installed) = set_up(&cluster, 2);
    let config = std::fs::read_to_string(node.root().join("etc/edge-runtime/config.yaml")).expect("read");
    let own =
        format!("registry: [{{host: '{}', plain-http: true}}]\nupgrade: {{trial-seconds: 10}}\n", registry.address);
    node.configure(&format!("{config}{own}"));
    installed.kill();
    node.wait_ready();
    let (before, containers) = (installed.program(), node.container_pids());

    // A good one.
    let good = Bundle::good(cluster.folder(), "good");
    let said = node.edge_ok(&["version"]);
    let version = said.split_whitespace().nth(1).expect("a version").to_owned();
    let digest = registry.push(&image(cluster.folder(), &good, "good"), "sampan/edge-runtime:good");
    let repository = format!("{}/sampan/edge-runtime", registry.address);
    cluster.kubectl.apply_all(&[upgrade_job("good", &node.name, &repository, &digest, &version)]);
    let job = wait_phase(&cluster, "nodeupgradejob", "good", "Completed");
    let status = node_status(&job);
    assert_eq!(status["phase"], "Successful", "{status}");
    let actions: Vec<&str> =
        status["actionFlow"].as_array().into_iter().flatten().filter_map(|step| step["action"].as_str()).collect();
    assert_eq!(actions, ["Check", "BackUp", "Upgrade"], "{status}");
    let current = status["currentVersion"].as_str().unwrap_or_default().to_owned();
    assert!(installed.program().to_string_lossy().contains(&current) && installed.program() != before, "{status}");
    assert_eq!(node.container_pids(), containers);

    // One that crashes.
    let bad = Bundle::script(cluster.folder(), "bad", "exit 3");
    let digest = registry.push(&image(cluster.folder(), &bad, "bad"), "sampan/edge-runtime:bad");
    cluster.kubectl.apply_all(&[upgrade_job("bad", &node.name, &repository, &digest, &version)]);
    let job = wait_phase(&cluster, "nodeupgradejob", "bad", "Failure");
    let status = node_status(&job);
    assert!(status["reason"].as_str().is_some_and(|why| why.contains("ended 3 times")), "{status}");
    assert!(status["actionFlow"].to_string().contains("RollBack"), "{status}");
    assert!(installed.program().to_string_lossy().contains(&current), "{status}");
    super::wait_condition(&cluster, &node, "False", "ended 3 times");

    // One that waits for a user of the node, and holds up none of those that follow.
    let mut waits = upgrade_job("waits", &node.name, &repository, &digest, "v99.0.0");
    waits["spec"]["requireConfirmation"] = json!(true);
    cluster.kubectl.apply_all(&[waits]);
    until(Duration::from_secs(60), "the job waits for its confirmation", || {
        let job = cluster.kubectl.get("nodeupgradejob", "waits")?;
        let said = node_status(&job).to_string();
        if said.contains("WaitingConfirmation") { Ok(()) } else { Err(said) }
    });

    // Images, and one that is not there.
    let busybox = registry.push(&cluster.folder().join("busybox.tar"), "tools/busybox:1");
    assert!(busybox.starts_with("sha256:"));
    let images = [format!("{}/tools/busybox:1", registry.address), format!("{}/tools/none:1", registry.address)];
    cluster.kubectl.apply_all(&[json!({"apiVersion": "operations.kubeedge.io/v1alpha2", "kind": "ImagePrePullJob",
        "metadata": {"name": "images"},
        "spec": {"imagePrePullTemplate": {"images": images, "nodeNames": [node.name]}}})]);
    let job = wait_phase(&cluster, "imageprepulljob", "images", "Failure");
    let here = node_status(&job)["imageStatus"].to_string();
    assert!(here.contains("\"status\":\"True\"") && here.contains("\"status\":\"False\""), "{job}");
    assert!(node.edge_ok(&["images"]).contains("tools/busybox"), "it is here");

    // Values of the configuration: one that may be changed, one that may not, one that does not fit.
    let configure = |name: &str, fields: Value| {
        json!({"apiVersion": "operations.kubeedge.io/v1alpha2", "kind": "ConfigUpdateJob", "metadata": {"name": name},
            "spec": {"updateFields": fields, "nodeNames": [node.name]}})
    };
    cluster.kubectl.apply_all(&[configure("label", json!({"labels.job/done": "'yes'"}))]);
    wait_phase(&cluster, "configupdatejob", "label", "Completed");
    until(Duration::from_secs(30), "the label", || {
        let object = cluster.kubectl.get("node", &node.name)?;
        if object["metadata"]["labels"]["job/done"] == "yes" { Ok(()) } else { Err(object["metadata"].to_string()) }
    });
    for (name, fields, why) in [
        ("name", json!({"node-name": "other"}), "cannot be changed by a job"),
        ("value", json!({"pull.window": "always"}), "pull.window"),
    ] {
        cluster.kubectl.apply_all(&[configure(name, fields)]);
        let job = wait_phase(&cluster, "configupdatejob", name, "Failure");
        assert!(node_status(&job)["reason"].as_str().is_some_and(|reason| reason.contains(why)), "{job}");
    }

    node.edge_ok(&["confirm", "waits"]);
    let job = wait_phase(&cluster, "nodeupgradejob", "waits", "Failure");
    let reason = node_status(&job)["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("the job names v99.0.0"), "{job}");
    assert_eq!(node.container_pids(), containers, "none of it touches a container");
}
