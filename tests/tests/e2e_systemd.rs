//! Nodes whose cgroups are managed by systemd (`TEST_CGROUP_DRIVER=systemd`, on a machine started by systemd:
//! `INIT=systemd scripts/cgroup2-machine`). Values must be systemd's own, and no unit may outlive its pod.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sampan_tests::manifest::{container_id, pod, shell, with};
use sampan_tests::node::with_systemd;
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::{Value, json};

fn can_run_here() -> bool {
    if !with_systemd() {
        // There is nothing to do if stderr is closed.
        let _ = writeln!(std::io::stderr(), "skipped: TEST_CGROUP_DRIVER is not systemd");
        return false;
    }
    can_run()
}

fn systemctl(args: &[&str]) -> String {
    let output = Command::new("systemctl").args(args).output().expect("systemctl starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Units whose names contain `part`, in any state.
fn units(part: &str) -> Vec<String> {
    let all = systemctl(&["list-units", "--all", "--plain", "--no-legend", "--no-pager"]);
    all.lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|unit| unit.contains(part))
        .map(str::to_owned)
        .collect()
}

/// The uid as in the name of a slice.
fn slice_uid(pod: &Value) -> String {
    pod["metadata"]["uid"].as_str().expect("a uid").replace('-', "_")
}

/// The scope of a container's first process.
fn scope(node: &EdgeNode, pod: &Value) -> PathBuf {
    let id = container_id(&pod["status"]["containerStatuses"][0]);
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", node.container_pids()[&id])).expect("it runs");
    let path = groups.trim().strip_prefix("0::/").expect("cgroup v2 alone");
    assert!(path.ends_with(&format!("/sampan-{id}.scope")), "{path}");
    Path::new("/sys/fs/cgroup").join(path)
}

/// Values of a scope and of the slices around it, by unit and file.
fn values(scope: &Path) -> BTreeMap<String, String> {
    let files = ["cpu.weight", "cpu.max", "memory.max", "memory.swap.max", "memory.oom.group", "pids.max"];
    let groups = scope.ancestors().take_while(|group| *group != Path::new("/sys/fs/cgroup"));
    let all = groups.flat_map(|group| files.map(|file| group.join(file)));
    all.filter_map(|file| Some((file.display().to_string(), std::fs::read_to_string(&file).ok()?.trim().to_owned())))
        .collect()
}

fn bounded(name: &str, node: &EdgeNode) -> Value {
    let resources = json!({"requests": {"cpu": "250m"}, "limits": {"memory": "32Mi", "cpu": "500m"}});
    let script = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
    pod(name, &node.name, json!([with(shell("c", script), &json!({"resources": resources}))]))
}

#[test]
fn limits_outlive_a_reload_of_systemd_and_no_unit_its_pod() {
    if !can_run_here() {
        return;
    }
    let cluster = Cluster::start("reload");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let eater = with(shell("c", "tail /dev/zero"), &json!({"resources": {"limits": {"memory": "16Mi"}}}));
    let mut eater = pod("eater", &node.name, json!([eater]));
    eater["spec"]["restartPolicy"] = json!("Never");
    kubectl.apply_all(&[bounded("app", &node), eater]);
    let app = kubectl.wait_ready("app");
    let scope = scope(&node, &app);
    let asked = values(&scope);
    let of = |group: &Path, file: &str| asked[&group.join(file).display().to_string()].as_str();
    let slice = scope.parent().expect("a slice");
    assert!(slice.ends_with(format!("{}.slice", slice.file_stem().and_then(|name| name.to_str()).expect("a name"))));
    for group in [scope.as_path(), slice] {
        assert_eq!(of(group, "memory.max"), (32 << 20).to_string());
        assert_eq!(of(group, "cpu.max"), "50000 100000");
        assert_eq!(of(group, "cpu.weight"), "35");
        assert_eq!(of(group, "pids.max"), "max");
    }
    assert_eq!((of(&scope, "memory.swap.max"), of(&scope, "memory.oom.group")), ("0", "1"));
    let besteffort = slice.parent().expect("a class").with_file_name(
        slice
            .parent()
            .and_then(Path::file_name)
            .and_then(|name| name.to_str())
            .expect("a name")
            .replace("burstable", "besteffort"),
    );
    let weight = || std::fs::read_to_string(besteffort.join("cpu.weight")).expect("the class").trim().to_owned();
    assert_eq!(weight(), "1");

    // systemd then writes the values of all its units again, as they were set through it.
    systemctl(&["daemon-reload"]);
    until(Duration::from_secs(30), "all values are what they were", || {
        let now = values(&scope);
        let others = asked.iter().filter(|(file, _)| !file.ends_with("memory.oom.group"));
        for (file, value) in others {
            assert_eq!(now.get(file), Some(value), "{file} after the reload");
        }
        // systemd 252 has no property for this one: the node writes it again at its next check.
        if now == asked { Ok(()) } else { Err(format!("{now:?}")) }
    });
    assert_eq!(weight(), "1");

    let eaten = kubectl.wait_phase("eater", "Failed");
    assert_eq!(eaten["status"]["containerStatuses"][0]["state"]["terminated"]["reason"], "OOMKilled", "{eaten}");
    let _ = kubectl.ok(&["delete", "pod", "app", "eater"]);
    for (pod, id) in [(&app, slice_uid(&app)), (&eaten, slice_uid(&eaten))] {
        let container = container_id(&pod["status"]["containerStatuses"][0]);
        until(Duration::from_secs(10), "no unit of a deleted pod is left", || {
            let left = [units(&id), units(&container)].concat();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        });
        let kept = ["/run/systemd/transient", "/run/systemd/system.control"].map(|folder| {
            std::fs::read_dir(folder)
                .into_iter()
                .flatten()
                .flatten()
                .filter(|file| file.file_name().to_string_lossy().contains(&id))
                .count()
        });
        assert_eq!(kept, [0, 0], "files of its units");
    }
    let parent = units("sampan_").into_iter().find(|unit| unit.matches('-').count() == 0).expect("the node's slice");
    drop(node);
    assert_eq!(units(parent.trim_end_matches(".slice")), Vec::<String>::new(), "after the reset");
}

#[test]
fn a_new_daemon_takes_units_over_and_ends_those_of_no_pod() {
    if !can_run_here() {
        return;
    }
    let cluster = Cluster::start("takeover");
    let mut node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[bounded("app", &node)]);
    let app = kubectl.wait_ready("app");
    let scope = scope(&node, &app);
    let asked = values(&scope);
    let pids = node.container_pids();

    node.kill();
    let slice = scope.parent().and_then(Path::file_name).and_then(|name| name.to_str()).expect("a slice");
    let gone = slice.replace(&slice_uid(&app), "0_gone");
    let run = ["--quiet", "--scope", "--slice", &gone, "sleep", "100000"];
    let mut left = Command::new("systemd-run").args(run).spawn().expect("systemd-run starts");
    until(Duration::from_secs(10), "a unit of a pod that nobody knows", || {
        if units("0_gone").is_empty() { Err("not yet".to_owned()) } else { Ok(()) }
    });
    // A change that an administrator may make manually.
    systemctl(&["set-property", "--runtime", slice, "MemoryMax=1G"]);
    node.start();
    let _ = left.wait();
    until(Duration::from_secs(20), "it is gone", || {
        let units = units("0_gone");
        if units.is_empty() { Ok(()) } else { Err(format!("{units:?}")) }
    });
    node.wait_connected(&cluster);
    assert_eq!(node.container_pids(), pids, "the pod goes on");
    // The next start of one of its containers sets the pod's values again.
    sampan_tests::process::signal(*pids.values().next().expect("it runs"), "KILL");
    let again = kubectl.wait_pod("app", 30, "runs again", |pod| {
        let status = &pod["status"]["containerStatuses"][0];
        status["restartCount"] == 1 && status["ready"] == true
    });
    let now = values(&self::scope(&node, &again));
    let slices = |all: &BTreeMap<String, String>| -> Vec<(String, String)> {
        all.iter()
            .filter(|(file, _)| !file.contains(".scope/"))
            .map(|(file, value)| (file.clone(), value.clone()))
            .collect()
    };
    assert_eq!(slices(&now), slices(&asked));
    let _ = kubectl.ok(&["delete", "pod", "app"]);
    assert_eq!(units(&slice_uid(&app)), Vec::<String>::new());
}
