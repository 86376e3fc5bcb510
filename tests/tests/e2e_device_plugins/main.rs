//! Device plugins of Kubernetes: a real plugin (plugin.py), the real helper and real containers (docs/device-plugins.md).

mod plugin;

use std::path::{Path, PathBuf};
use std::time::Duration;

use sampan_tests::manifest::{container_id, pod, shell, with};
use sampan_tests::process::{self, signal};
use sampan_tests::{Cluster, EdgeNode, Kubectl, can_run, until};
use serde_json::{Value, json};

use self::plugin::Plugin;

const GPU: &str = "example.com/gpu";
/// Until a change of a plugin is in the Node object.
const SOON: Duration = Duration::from_secs(30);

/// Dropped in this order: the plugin ends before the node, and the node before its cluster.
struct Site {
    plugin: Option<Plugin>,
    node: EdgeNode,
    cluster: Cluster,
}

impl Site {
    /// A node with a plugin that offers the devices `a` and `b`.
    fn start(test: &str, more: &[&str]) -> Self {
        let cluster = Cluster::start(test);
        let folder = cluster.folder().to_owned();
        for (file, text) in [("given/hello", "hello of the plugin\n".to_owned()), ("cdi/example.json", cdi())] {
            let file = folder.join(file);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            std::fs::write(file, text).expect("written");
        }
        let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
        node.configure(&config(&folder));
        node.start();
        node.wait_ready();
        let plugin = Some(Plugin::start(&folder, GPU, "a,b", more));
        let site = Self { plugin, node, cluster };
        site.wait_devices("2", "2");
        site
    }

    fn kubectl(&self) -> &Kubectl {
        &self.cluster.kubectl
    }

    fn plugin(&mut self) -> &mut Plugin {
        self.plugin.as_mut().expect("a plugin")
    }

    fn wait_devices(&self, capacity: &str, allocatable: &str) {
        until(SOON, "devices of the node", || {
            let node = self.kubectl().get("node", &self.node.name)?;
            let of = |field: &str| node["status"][field][GPU].as_str().unwrap_or("none").to_owned();
            let found = (of("capacity"), of("allocatable"));
            if found == (capacity.to_owned(), allocatable.to_owned()) { Ok(()) } else { Err(format!("{found:?}")) }
        });
    }

    /// A pod with a device; starts, and returns the device and the id of its container.
    fn holder(&self, name: &str) -> (String, String) {
        self.kubectl().apply_all(&[wants(name, &self.node.name)]);
        let ready = self.kubectl().wait_ready(name);
        (self.device(name), container_id(&ready["status"]["containerStatuses"][0]))
    }

    fn device(&self, name: &str) -> String {
        self.kubectl().ok(&["exec", name, "--", "sh", "-c", "echo $GPU_IDS"]).trim().to_owned()
    }

    /// Health of the device of a pod, as its status has it.
    fn wait_health(&self, name: &str, health: &str) {
        self.kubectl().wait_pod(name, 30, health, |pod| {
            let status = &pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0];
            status["name"] == GPU && status["resources"][0]["health"] == health
        });
    }

    fn restart_daemon(&mut self) {
        self.node.kill();
        self.node.start();
        self.node.wait_ready();
    }
}

fn config(folder: &Path) -> String {
    let (root, cdi) = (folder.join("kubelet"), folder.join("cdi"));
    format!("plugins: {{device-plugins: true, root: '{}', cdi-folders: ['{}']}}\n", root.display(), cdi.display())
}

fn cdi() -> String {
    let node = json!({"path": "/dev/of-cdi", "hostPath": "/dev/full", "permissions": "rw"});
    let edits = json!({"env": ["OF_CDI=yes"], "deviceNodes": [node]});
    json!({"cdiVersion": "0.6.0", "kind": "example.com/dev", "devices": [{"name": "one", "containerEdits": edits}]})
        .to_string()
}

fn wants(name: &str, node: &str) -> Value {
    let container = with(shell("c", "exec sleep 1000"), &json!({"resources": {"limits": {GPU: "1"}}}));
    pod(name, node, json!([container]))
}

/// Processes of the helper that serve this root.
fn helpers(root: &Path) -> Vec<u32> {
    process::helpers(root, "edge-plugins", "device-plugins.sock")
}

/// The devices of each pod's file.
fn kept(root: &Path) -> Vec<String> {
    let folders = std::fs::read_dir(root.join("var/lib/edge-runtime/pods")).expect("a folder").flatten();
    let files = folders.filter_map(|folder| std::fs::read(folder.path().join("plugin-devices.json")).ok());
    let mut all: Vec<String> = files
        .flat_map(|text| {
            let file: Value = serde_json::from_slice(&text).expect("whole");
            let ids = file["c"][GPU]["ids"].as_array().cloned().unwrap_or_default();
            ids.into_iter().filter_map(|id| id.as_str().map(str::to_owned))
        })
        .collect();
    all.sort();
    all
}

/// For five minutes after a boot, no pod is refused for a device.
fn has_just_booted() -> bool {
    let uptime = std::fs::read_to_string("/proc/uptime").expect("procfs");
    let seconds = uptime.split('.').next().and_then(|text| text.parse::<u64>().ok()).expect("a number");
    seconds < 320
}

#[test]
fn each_device_goes_to_one_container_with_all_that_belongs_to_it() {
    if !can_run() {
        return;
    }
    let mut site = Site::start("device-plugin", &[]);
    let (first, _) = site.holder("first");
    let look = "ls /dev/gpu-$GPU_IDS /dev/of-cdi && cat /plugin/hello && echo $OF_CDI && ! touch /plugin/x 2>&-";
    let seen = site.kubectl().ok(&["exec", "first", "--", "sh", "-c", look]);
    assert_eq!(seen.trim(), format!("/dev/gpu-{first}\n/dev/of-cdi\nhello of the plugin\nyes"));
    // The node that was granted, and no other.
    let read = format!("head -c 3 /dev/gpu-{first} | wc -c");
    assert_eq!(site.kubectl().ok(&["exec", "first", "--", "sh", "-c", &read]).trim(), "3");

    let (second, _) = site.holder("second");
    let mut both = [first.clone(), second.clone()];
    both.sort();
    assert_eq!((both.as_slice(), kept(site.node.root())), (["a".to_owned(), "b".to_owned()].as_slice(), both.to_vec()));
    site.wait_health("first", "Healthy");
    let shown = site.node.edge_ok(&["devices", "plugins"]);
    assert!(shown.contains(GPU) && shown.contains("/second") && shown.lines().count() == 3, "{shown}");
    let status = site.node.edge_ok(&["status"]);
    assert!(status.contains("plugins") && status.contains("1 resources with 2 devices"), "{status}");

    site.kubectl().apply_all(&[wants("third", &site.node.name)]);
    let text = format!("requested number of devices unavailable for {GPU}. Requested: 1, Available: 0");
    if has_just_booted() {
        let told = site.kubectl().wait_event("third", "WaitingForDevice");
        assert!(told.contains(&text), "{told}");
        let _ = site.kubectl().ok(&["delete", "pod", "third"]);
    } else {
        let failed = site.kubectl().wait_phase("third", "Failed");
        assert_eq!(failed["status"]["reason"], "UnexpectedAdmissionError");
        let message = failed["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(&format!("Allocate failed due to {text}, which is unexpected")), "{message}");
    }

    // A device is free when its pod has gone.
    let _ = site.kubectl().ok(&["delete", "pod", "second"]);
    site.kubectl().wait_gone("pod", "second", 30);
    assert_eq!(site.holder("fourth").0, second);

    // The health of devices.
    let unhealthy = json!({"health": {&first: "Unhealthy"}});
    site.plugin().command(&unhealthy);
    site.wait_devices("2", "1");
    site.wait_health("first", "Unhealthy");
    site.wait_health("fourth", "Healthy");
}

#[test]
fn containers_keep_their_devices_without_plugin_helper_and_daemon() {
    if !can_run() {
        return;
    }
    let mut site = Site::start("plugin-away", &[]);
    let (device, id) = site.holder("first");
    let process = |site: &Site| site.node.container_pids().get(&id).copied();
    let runs = process(&site);

    site.plugin = None;
    site.wait_devices("2", "0");
    site.wait_health("first", "Unknown");
    assert_eq!(process(&site), runs);
    // Its container starts again without the plugin.
    signal(runs.expect("it runs"), "KILL");
    site.kubectl().wait_pod("first", 60, "restarted", |pod| {
        let status = &pod["status"]["containerStatuses"][0];
        status["restartCount"].as_u64() >= Some(1) && status["ready"] == true
    });
    assert_eq!(site.device("first"), device);

    let folder = site.cluster.folder().to_owned();
    site.plugin = Some(Plugin::start(&folder, GPU, "a,b", &[]));
    site.wait_devices("2", "2");
    let pids = site.node.container_pids();
    let helper = helpers(site.node.root());
    assert_eq!(helper.len(), 1);
    site.restart_daemon();
    assert_eq!(helpers(site.node.root()), helper, "it outlives the daemon");
    signal(helper[0], "KILL");
    until(SOON, "another helper", || match helpers(site.node.root()).as_slice() {
        [other] if *other != helper[0] => Ok(()),
        other => Err(format!("{other:?}")),
    });
    site.wait_devices("2", "2");
    assert_eq!(site.node.container_pids(), pids);
    assert_eq!(site.device("first"), device);
    let (other, _) = site.holder("second");
    assert_ne!(other, device);
    assert_eq!(site.plugin().calls("Allocate"), [vec![other.clone()]], "of this plugin, no other was asked for");

    // The device has another name, as after a boot: its container gets it when it starts again.
    site.plugin = None;
    site.plugin = Some(Plugin::start(&folder, GPU, &format!("{other},c"), &[]));
    site.wait_health("first", "Unknown");
    site.wait_health("second", "Healthy");
    assert_eq!(site.device("first"), device, "as long as it runs");
    let ready = site.kubectl().wait_ready("first");
    signal(site.node.container_pids()[&container_id(&ready["status"]["containerStatuses"][0])], "KILL");
    site.kubectl().wait_pod("first", 90, "restarted", |pod| {
        let status = &pod["status"]["containerStatuses"][0];
        status["restartCount"].as_u64() >= Some(2) && status["ready"] == true
    });
    assert_eq!(site.device("first"), "c");
}

#[test]
fn container_waits_for_a_plugin_that_knows_of_every_start() {
    if !can_run() {
        return;
    }
    let mut site = Site::start("pre-start", &["pre-start"]);
    let (device, id) = site.holder("first");
    assert_eq!(site.plugin().calls("PreStartContainer"), [vec![device.clone()]]);
    site.plugin = None;
    site.wait_devices("2", "0");
    signal(site.node.container_pids()[&id], "KILL");
    let waiting = site.kubectl().wait_pod("first", 60, "waits", |pod| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "WaitingForDevice"
    });
    assert_eq!(waiting["status"]["phase"], "Running", "{waiting}");
    let folder = site.cluster.folder().to_owned();
    site.plugin = Some(Plugin::start(&folder, GPU, "a,b", &["pre-start"]));
    site.kubectl().wait_ready("first");
    assert_eq!((site.device("first"), site.plugin().calls("PreStartContainer")), (device.clone(), vec![vec![device]]));
    assert!(site.plugin().calls("Allocate").is_empty(), "once for each container and pod");
}

#[test]
fn pod_that_a_plugin_refuses_fails() {
    if !can_run() || has_just_booted() {
        return;
    }
    let mut site = Site::start("plugin-refuses", &[]);
    site.plugin().command(&json!({"refuse": "the gpu is hot"}));
    site.kubectl().apply_all(&[wants("first", &site.node.name)]);
    let failed = site.kubectl().wait_phase("first", "Failed");
    assert_eq!(failed["status"]["reason"], "UnexpectedAdmissionError");
    let message = failed["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("the gpu is hot") && message.contains("which is unexpected"), "{message}");
    site.plugin().command(&json!({"refuse": ""}));
    site.holder("second");
}

#[test]
fn resource_of_the_configuration_is_refused_to_plugins() {
    if !can_run() {
        return;
    }
    let mut site = Site::start("plugin-taken", &[]);
    site.plugin = None;
    let folder = site.cluster.folder().to_owned();
    site.node.configure(&format!("{}devices: {{{GPU}: [/dev/null]}}\n", config(&folder)));
    site.restart_daemon();
    site.wait_devices("1", "1");
    let plugin = Plugin::start_refused(&folder, GPU, "a,b");
    let why = plugin.refused();
    assert!(why.contains(GPU), "{why}");
    site.wait_devices("1", "1");
}

#[test]
fn off_is_off() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("plugins-off");
    let mut node = cluster.node("edge");
    let absent = |node: &EdgeNode| {
        let run = node.root().join("run/edge-runtime");
        let files: [PathBuf; 2] = [run.join("device-plugins.sock"), run.join("device-plugins.json")];
        assert_eq!(helpers(node.root()), [0_u32; 0]);
        assert!(files.iter().all(|file| !file.exists()) && !cluster.folder().join("kubelet").exists());
    };
    std::thread::sleep(Duration::from_secs(2));
    absent(&node);
    // As in Kubernetes, a resource that an administrator has put into the Node object is none of a plugin's.
    cluster.kubectl.apply_all(&[wants("first", &node.name)]);
    cluster.kubectl.wait_ready("first");
    assert!(kept(node.root()).is_empty());

    node.configure(&config(cluster.folder()));
    node.kill();
    node.start();
    until(SOON, "the helper", || match helpers(node.root()).len() {
        1 => Ok(()),
        other => Err(format!("{other} helpers")),
    });
    node.configure("");
    node.kill();
    node.start();
    until(SOON, "no helper", || match helpers(node.root()).len() {
        0 => Ok(()),
        other => Err(format!("{other} helpers")),
    });
}
