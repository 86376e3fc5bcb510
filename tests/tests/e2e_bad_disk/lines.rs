//! Pods that print numbered lines, and checks of their logs: each line is there, or counted as dropped.

use std::path::{Path, PathBuf};

use sampan_tests::manifest::{pod, shell};
use sampan_tests::{EdgeNode, Kubectl};
use serde_json::{Value, json};

/// Prints about 100 KB/s of lines `N line xxx...` from each container.
pub(crate) fn printing(name: &str, node: &str, containers: &[&str]) -> Value {
    let script = "pad=$(head -c 900 /dev/zero | tr '\\0' x); n=0
        while :; do n=$((n+1)); echo \"$n line $pad\"; [ $((n % 10)) -gt 0 ] || sleep 0.1; done";
    let all: Vec<Value> = containers.iter().map(|name| shell(name, script)).collect();
    pod(name, node, json!(all))
}

/// The log folder of a container, as the kubelet names it.
pub(crate) fn log_folder(node: &EdgeNode, kubectl: &Kubectl, pod: &Value, container: &str) -> PathBuf {
    let of = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    let name = format!("{}_{}_{}", kubectl.namespace, of("name"), of("uid"));
    node.root().join("var/log/pods").join(name).join(container)
}

/// The whole log of the first attempt, oldest first.
pub(crate) fn text(folder: &Path) -> Result<String, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    // The current file has the shortest name, the others sort by age.
    names.sort_by_key(|path| (path.extension().is_some_and(|end| end == "log"), path.clone()));
    names.iter().map(|path| std::fs::read_to_string(path).map_err(|error| error.to_string())).collect()
}

/// Deletes rotated files, like an administrator who needs room.
pub(crate) fn drop_rotated(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().extension().is_none_or(|end| end != "log") {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Lines reported as dropped, as `(number, reason)`.
pub(crate) fn losses(text: &str) -> Vec<(u64, String)> {
    let one = |line: &str| {
        let said = line.split_once("[edge-runtime: ")?.1;
        let (number, why) = said.split_once(" lines dropped, they could not be written: ")?;
        Some((number.parse().ok()?, why.trim_end_matches(']').to_owned()))
    };
    text.lines().filter_map(one).collect()
}

/// Checks that every number is in the log or counted as dropped; returns how many were counted.
pub(crate) fn all_accounted(text: &str) -> Result<u64, String> {
    let (mut last, mut missing, mut counted): (Option<u64>, u64, u64) = (None, 0, 0);
    for line in text.lines() {
        if let Some((number, _)) = losses(line).first() {
            (missing, counted) = (missing + number, counted + number);
            continue;
        }
        let Some((before, _)) = line.split_once(" line ") else { return Err(format!("torn: {line}")) };
        let number: u64 = before.rsplit(' ').next().and_then(|text| text.parse().ok()).ok_or("no number")?;
        match last {
            Some(last) if last + missing + 1 != number => {
                return Err(format!("{last}, {missing} said to be dropped, {number}"));
            }
            _ => (last, missing) = (Some(number), 0),
        }
    }
    Ok(counted)
}
