//! Programs and peers that never answer: each affects only one pod.

mod black_hole;
mod cni;
mod nft;
mod registry;
mod runtime;
mod volume;

use std::path::{Path, PathBuf};
use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::process::binary;
use sampan_tests::{Kubectl, until};
use serde_json::{Value, json};

/// A program that hangs while a file exists, and then works as the real one.
struct Hanging {
    flag: PathBuf,
    program: PathBuf,
}

impl Hanging {
    /// `when` is a shell condition for the calls that hang; "$*" are their arguments.
    fn new(folder: &Path, name: &str, real: &str, when: &str) -> Self {
        std::fs::create_dir_all(folder).expect("a folder");
        let (flag, program) = (folder.join(format!("{name}.hangs")), folder.join(name));
        let script = format!(
            "#!/bin/sh\nif {when}; then while [ -e {} ]; do sleep 0.2; done; fi\nexec {real} \"$@\"\n",
            flag.display()
        );
        std::fs::write(&program, script).expect("written");
        executable(&program);
        Self { flag, program }
    }

    fn hang(&self) {
        std::fs::write(&self.flag, "").expect("written");
    }

    fn let_go(&self) {
        std::fs::remove_file(&self.flag).expect("it hung");
    }

    /// Waits until none of its processes exists, not even a killed one.
    fn wait_none_left(&self) {
        let name = self.program.display().to_string();
        wait_no_process(&name, |line| line.contains(&name));
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        // It may be released already.
        let _ = std::fs::remove_file(&self.flag);
    }
}

fn executable(program: &Path) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(program, mode).expect("its mode");
}

/// The full path of a program on this host.
fn real(name: &str) -> String {
    let path = std::env::var_os("PATH").expect("a PATH");
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is installed")).display().to_string()
}

/// Waits until no process has a matching command line.
fn wait_no_process(what: &str, is: impl Fn(&str) -> bool) {
    until(Duration::from_secs(20), &format!("no process of {what} is left"), || {
        let all = std::fs::read_dir("/proc").map_err(|error| error.to_string())?.flatten();
        let line = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
        let lines = all.filter_map(line).map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        lines.into_iter().find(|line| is(line)).map_or(Ok(()), Err)
    });
}

/// Waits until no helper that inspects volumes is running.
fn wait_no_look() {
    let program = binary("edge-runtime");
    until(Duration::from_secs(20), "no helper that looks is left", || {
        let all = std::fs::read_dir("/proc").map_err(|error| error.to_string())?.flatten();
        let looks = |entry: &std::fs::DirEntry| {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let ours = std::fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program);
            ours && line.split(|byte| *byte == 0).nth(1) == Some(b"look")
        };
        all.into_iter().find(looks).map_or(Ok(()), |left| Err(format!("{:?}", left.file_name())))
    });
}

/// A pod with frequent probes, which shows if the daemon hangs.
fn watched(name: &str, node: &str) -> Value {
    let script = "while :; do date +%s >/alive; sleep 1; done";
    let probe = json!({"exec": {"command": ["test", "-e", "/alive"]}, "periodSeconds": 1, "timeoutSeconds": 10});
    let more = json!({"livenessProbe": probe, "readinessProbe": probe});
    pod(name, node, json!([with(shell("c", script), &more)]))
}

fn simple(name: &str, node: &str) -> Value {
    pod(name, node, json!([shell("c", "exec sleep 1000")]))
}

fn on_host_network(pod: Value) -> Value {
    with_spec(pod, &json!({"hostNetwork": true}))
}

/// The message of an event about `pod` that contains all of these words.
fn wait_told(kubectl: &Kubectl, pod: &str, seconds: u64, words: &[&str]) -> String {
    let selector = format!("involvedObject.name={pod}");
    until(Duration::from_secs(seconds), &format!("{pod}: an event of {words:?}"), || {
        let events = kubectl.run(&["get", "events", "-o", "wide", "--field-selector", &selector])?;
        let told = events.lines().find(|line| words.iter().all(|word| line.contains(word)));
        told.map(str::to_owned).ok_or(events)
    })
}

/// Everything else works: a new pod starts, the watched one is ready and was never restarted, exec is answered, and the
/// node renews its Lease.
fn all_else_goes_on(kubectl: &Kubectl, node: &str, watched: &str, new: Value) {
    let name = new["metadata"]["name"].as_str().expect("it has one").to_owned();
    kubectl.apply_all(&[new]);
    kubectl.wait_ready(&name);
    let seen = kubectl.wait_ready(watched);
    assert_eq!(seen["status"]["containerStatuses"][0]["restartCount"], 0, "{seen}");
    assert_eq!(kubectl.ok(&["exec", watched, "--", "echo", "here"]), "here\n");
    let object = kubectl.get("node", node).expect("the node");
    let ready = object["status"]["conditions"].as_array().into_iter().flatten().find(|one| one["type"] == "Ready");
    assert_eq!(ready.map(|one| &one["status"]), Some(&json!("True")), "{object}");
}

fn force_delete(kubectl: &Kubectl, pod: &str) {
    let _ = kubectl.ok(&["delete", "pod", pod, "--force", "--grace-period=0", "--wait=false"]);
    kubectl.wait_gone("pod", pod, 10);
}
