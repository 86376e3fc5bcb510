//! Volumes of CSI drivers: a real driver (csi_driver.py), the real helper and real containers (docs/csi.md).

mod controller;
mod driver;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sampan_tests::manifest::{container_id, pod, shell, with, with_spec};
use sampan_tests::process::{self, signal};
use sampan_tests::{Cluster, EdgeNode, Kubectl, can_run, until};
use serde_json::{Value, json};

use self::driver::Driver;

const NAME: &str = "folders.example.com";
const OTHER: &str = "others.example.com";
/// Until a pod has its volume, or has lost it.
const SOON: Duration = Duration::from_secs(40);

/// Dropped in this order: the driver ends before the node, and the node before its cluster.
struct Site {
    driver: Option<Driver>,
    node: EdgeNode,
    cluster: Cluster,
}

impl Drop for Site {
    /// What a failed test has left would keep its folder.
    fn drop(&mut self) {
        unmount(&self.cluster.folder().join("kubelet"));
    }
}

impl Site {
    /// A node with a driver, whose volumes need no attachment.
    fn start(test: &str) -> Self {
        Self::on(Cluster::start(test), "")
    }

    /// Same as [`Site::start`] in a cluster that runs, with more keys for `plugins`: `, KEY: VALUE`.
    fn on(cluster: Cluster, more: &str) -> Self {
        let folder = cluster.folder().to_owned();
        let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
        node.configure(&config(&folder, more));
        node.start();
        node.wait_ready();
        for (name, tokens) in [(NAME, json!([])), (OTHER, json!([{"audience": "vault"}]))] {
            let modes = ["Persistent", "Ephemeral"];
            let spec = json!({"attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": modes,
                "tokenRequests": tokens});
            cluster.kubectl.apply_all(&[json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
                "metadata": {"name": name}, "spec": spec})]);
        }
        let site = Self { driver: Some(Driver::start(&folder, NAME)), node, cluster };
        until(SOON, "the CSINode", || {
            let object = site.kubectl().get("csinode", &site.node.name)?;
            if object["spec"]["drivers"][0]["name"] == NAME { Ok(()) } else { Err(object.to_string()) }
        });
        site
    }

    fn kubectl(&self) -> &Kubectl {
        &self.cluster.kubectl
    }

    fn driver(&self) -> &Driver {
        self.driver.as_ref().expect("a driver")
    }

    /// Applies a claim that is bound to the volume of this handle.
    fn claim(&self, name: &str, driver: &str) {
        let namespace = &self.kubectl().namespace;
        let volume = format!("pv-{name}-{namespace}");
        let sizes = json!({"storage": "1Mi"});
        let csi = json!({"driver": driver, "volumeHandle": name});
        self.kubectl().apply_all(&[
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}, "spec": {"capacity": sizes,
                "accessModes": ["ReadWriteOnce"], "storageClassName": "", "persistentVolumeReclaimPolicy": "Retain",
                "csi": csi, "claimRef": {"namespace": namespace, "name": name}}}),
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": volume,
                "resources": {"requests": sizes}}}),
        ]);
    }

    fn apply(&self, name: &str, volume: &Value) {
        self.kubectl().apply_all(&[user(name, &self.node.name, volume)]);
    }

    fn exec(&self, pod: &str, script: &str) -> String {
        self.kubectl().ok(&["exec", pod, "--", "sh", "-c", script]).trim().to_owned()
    }

    fn delete(&self, pod: &str) {
        let _ = self.kubectl().ok(&["delete", "pod", pod, "--wait=false"]);
        self.kubectl().wait_gone("pod", pod, 60);
    }

    /// Mounts below the folder that stands for the kubelet's.
    fn mounts(&self) -> Vec<String> {
        mounts(&self.cluster.folder().join("kubelet"))
    }
}

fn config(folder: &Path, more: &str) -> String {
    format!("plugins: {{csi: true, root: '{}'{more}}}\n", folder.join("kubelet").display())
}

fn bound(claim: &str) -> Value {
    json!({"persistentVolumeClaim": {"claimName": claim}})
}

/// A pod that sees a volume at `/data`, and notes each start of its container there.
fn user(name: &str, node: &str, volume: &Value) -> Value {
    let script = format!("echo {name} >>/data/starts; exec sleep 1000");
    let container = with(shell("c", &script), &json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}));
    let volume = with(json!({"name": "data"}), volume);
    with_spec(pod(name, node, json!([container])), &json!({"volumes": [volume], "terminationGracePeriodSeconds": 1}))
}

fn mounts(folder: &Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mounts").expect("a file of the kernel");
    let points = table.lines().filter_map(|line| line.split(' ').nth(1));
    points.filter(|point| Path::new(point).starts_with(folder)).map(str::to_owned).collect()
}

/// Unmounts all below a folder, and what is mounted at itself.
fn unmount(folder: &Path) {
    for point in mounts(folder).iter().rev() {
        let _ = Command::new("umount").args(["--lazy", point]).status();
    }
}

/// Processes of the helper that serve this root.
fn helpers(root: &Path) -> Vec<u32> {
    process::helpers(root, "edge-plugins", "device-plugins.sock")
}

#[test]
fn pods_share_a_volume_until_the_last_one_has_gone() {
    if !can_run() {
        return;
    }
    let site = Site::start("csi");
    let before = site.mounts();
    site.claim("disk", NAME);
    site.apply("first", &bound("disk"));
    site.kubectl().wait_ready("first");
    assert_eq!(site.driver().file("disk", "starts"), "first\n");
    let context = site.driver().publication()["context"].clone();
    assert_eq!(context["csi.storage.k8s.io/pod.name"], "first", "{context}");
    site.apply("second", &bound("disk"));
    site.kubectl().wait_ready("second");
    assert_eq!(site.exec("second", "cat /data/starts"), "first\nsecond");
    assert_eq!(site.driver().calls("NodeStageVolume"), 1);

    // Deletion waits for the unmount, and the other pod keeps the volume.
    site.delete("first");
    let undone = |site: &Site| ["NodeUnpublishVolume", "NodeUnstageVolume"].map(|method| site.driver().calls(method));
    assert_eq!(undone(&site), [1, 0]);
    assert_eq!(site.exec("second", "echo x >/data/x; cat /data/x"), "x");
    site.delete("second");
    assert_eq!(undone(&site), [2, 1]);
    assert_eq!(site.mounts(), before);
    assert_eq!(site.driver().file("disk", "x"), "x\n");

    // A volume that ends with its pod. A folder in it is bound to the container, and holds nothing up.
    let inline = json!({"csi": {"driver": NAME, "volumeAttributes": {"a": "b"}}});
    let mut third = user("third", &site.node.name, &inline);
    let more = json!({"name": "data", "mountPath": "/below", "subPath": "below"});
    third["spec"]["containers"][0]["volumeMounts"].as_array_mut().expect("a list").push(more);
    site.kubectl().apply_all(&[third]);
    site.kubectl().wait_ready("third");
    assert_eq!(site.exec("third", "touch /below/y && ls /data/below"), "y");
    site.delete("third");
    assert_eq!((site.mounts(), site.driver().wrong()), (before, String::new()));
}

#[test]
fn volumes_outlive_daemon_and_helper() {
    if !can_run() {
        return;
    }
    let mut site = Site::start("csi-killed");
    let before = site.mounts();
    site.claim("disk", NAME);
    site.apply("first", &bound("disk"));
    let ready = site.kubectl().wait_ready("first");
    let id = container_id(&ready["status"]["containerStatuses"][0]);
    let runs = site.node.container_pids().get(&id).copied().expect("it runs");
    site.node.kill();
    let helper = helpers(site.node.root());
    assert_eq!(helper.len(), 1);
    signal(helper[0], "KILL");
    site.node.start();
    site.node.wait_ready();
    assert_eq!(site.node.container_pids().get(&id), Some(&runs), "it runs on");
    assert_eq!(site.exec("first", "cat /data/starts"), "first");
    // The restarted daemon has never heard from the helper where the volume is, but from its file.
    signal(runs, "KILL");
    until(SOON, "another start", || {
        match site.kubectl().run(&["exec", "first", "--", "cat", "/data/starts"])?.as_str() {
            "first\nfirst\n" => Ok(()),
            other => Err(other.to_owned()),
        }
    });

    // Killed again while it unmounts.
    site.driver().hold("NodeUnpublishVolume");
    let _ = site.kubectl().ok(&["delete", "pod", "first", "--wait=false"]);
    site.driver().wait_held();
    site.node.kill();
    let helper = helpers(site.node.root());
    signal(helper[0], "KILL");
    site.driver().release();
    site.node.start();
    site.kubectl().wait_gone("pod", "first", 60);
    until(
        SOON,
        "no mount is left",
        || if site.mounts() == before { Ok(()) } else { Err(format!("{:?}", site.mounts())) },
    );
    assert_eq!((site.driver().calls("NodeUnstageVolume"), site.driver().wrong()), (1, String::new()));
}

#[test]
fn board_without_a_cloud_mounts_its_volumes_again() {
    if !can_run() {
        return;
    }
    let mut site = Site::start("csi-offline");
    let folder = site.cluster.folder().to_owned();
    site.claim("disk", NAME);
    site.apply("first", &bound("disk"));
    site.kubectl().wait_ready("first");
    assert_eq!(site.driver().file("disk", "starts"), "first\n");
    let staged = site.driver().calls("NodeStageVolume");

    site.cluster.kill_bridge();
    site.driver = None;
    site.node.cut_power(&folder);
    helpers(site.node.root()).into_iter().for_each(|helper| signal(helper, "KILL"));
    unmount(&folder.join("kubelet"));
    site.node.start();
    // Its driver comes later than the node, which has mounts of its own since the power cut.
    std::thread::sleep(Duration::from_secs(3));
    let pid = site.node.daemon.as_ref().expect("it was started").pid();
    site.driver = Some(Driver::start_beside(pid, &folder, NAME));
    until(SOON, "a start without a cloud", || match site.driver().file("disk", "starts").as_str() {
        "first\nfirst\n" => Ok(()),
        other => Err(other.to_owned()),
    });
    assert_eq!((site.driver().calls("NodeStageVolume"), site.driver().wrong()), (staged + 1, String::new()));
}

#[test]
fn driver_that_hangs_holds_its_own_pods_alone() {
    if !can_run() {
        return;
    }
    let mut site = Site::start("csi-hangs");
    let folder = site.cluster.folder().to_owned();
    let other = Driver::start(&folder, OTHER);
    site.claim("disk", NAME);
    site.claim("more", OTHER);
    site.driver().hold("NodePublishVolume");
    site.apply("held", &bound("disk"));
    site.driver().wait_held();
    site.apply("free", &bound("more"));
    site.apply("plain", &json!({"emptyDir": {}}));
    site.kubectl().wait_ready("free");
    site.kubectl().wait_ready("plain");
    let tokens = other.publication()["context"]["csi.storage.k8s.io/serviceAccount.tokens"].clone();
    let tokens: Value = serde_json::from_str(tokens.as_str().expect("a text")).expect("JSON");
    assert!(tokens["vault"]["token"].is_string() && tokens["vault"]["expirationTimestamp"].is_string(), "{tokens}");
    site.delete("free");
    let held = site.kubectl().get("pod", "held").expect("it is there");
    assert_eq!(held["status"]["phase"], "Pending");
    site.driver().release();
    site.kubectl().wait_ready("held");

    // A driver that is away does not delay other pods either: the pod ends when the driver is back.
    site.driver = None;
    let _ = site.kubectl().ok(&["delete", "pod", "held", "--wait=false"]);
    site.delete("plain");
    assert!(site.kubectl().wait_event("held", "FailedKillPod").contains("UnmountVolume.TearDown failed"));
    site.driver = Some(Driver::start(&folder, NAME));
    site.kubectl().wait_gone("pod", "held", 60);
}

#[test]
fn volume_is_attached_before_it_is_mounted() {
    if !can_run() {
        return;
    }
    let site = Site::start("csi-attach");
    let kubectl = site.kubectl();
    let name = "attached.example.com";
    kubectl.apply_all(&[json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": name},
        "spec": {"attachRequired": true}})]);
    let _driver = Driver::start(site.cluster.folder(), name);
    site.claim("disk", name);
    site.apply("first", &bound("disk"));
    assert!(site.kubectl().wait_event("first", "FailedAttachVolume").contains("not attached according to node status"));
    let in_use = |site: &Site, expected: &Value| {
        until(SOON, "volumes in use", || {
            let node = site.kubectl().get("node", &site.node.name)?;
            if node["status"]["volumesInUse"] == *expected { Ok(()) } else { Err(node["status"].to_string()) }
        });
    };
    in_use(&site, &json!([format!("kubernetes.io/csi/{name}^disk")]));
    attach(&site, name, "disk");
    site.kubectl().wait_ready("first");
    site.delete("first");
    until(SOON, "no volume in use or attached", || {
        let status = site.kubectl().get("node", &site.node.name)?["status"].take();
        let is_empty = |field: &str| status[field].as_array().is_none_or(Vec::is_empty);
        if is_empty("volumesInUse") && is_empty("volumesAttached") { Ok(()) } else { Err(status.to_string()) }
    });
}

/// Does what the driver's attacher does: a controller has made the attachment.
fn attach(site: &Site, driver: &str, handle: &str) {
    let node = &site.node.name;
    let script = format!("printf %s {handle}{driver}{node} | sha256sum | cut -d ' ' -f 1");
    let sum = Command::new("sh").args(["-c", &script]).output().expect("it starts");
    let name = format!("csi-{}", String::from_utf8_lossy(&sum.stdout).trim());
    let _ = until(SOON, "its attachment", || site.kubectl().get("volumeattachment", &name));
    let status = json!({"status": {"attached": true}}).to_string();
    let patch = ["patch", "volumeattachment", &name, "--subresource=status", "--type=merge", "-p", &status];
    let _ = site.kubectl().ok(&patch);
}

#[test]
fn off_is_off() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("csi-off");
    let node = cluster.node("edge");
    let inline = json!({"csi": {"driver": NAME}});
    cluster.kubectl.apply_all(&[user("first", &node.name, &inline)]);
    let told = cluster.kubectl.wait_event("first", "FailedMount");
    assert!(told.contains(&format!("volume type csi ({NAME}) is not supported by this node")), "{told}");
    assert_eq!(helpers(node.root()), [0_u32; 0]);
    assert!(!cluster.folder().join("kubelet").exists());
    let object = cluster.kubectl.get("node", &node.name).expect("it is there");
    assert!(object["status"]["volumesInUse"].is_null(), "{object}");
}
