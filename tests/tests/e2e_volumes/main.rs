//! Volumes and other input of a pod from the cluster: tokens, environments of Services, claims.

mod claims;
mod drivers;
mod images;
mod paths;
mod propagation;
mod provisioned;
mod tokens;

use std::time::Duration;

use sampan_tests::{Kubectl, until};
use serde_json::{Value, json};

/// `{"volumeMounts": ...}` of names and paths.
fn mounts(list: &[(&str, &str)]) -> Value {
    let list: Vec<Value> = list.iter().map(|(name, path)| json!({"name": name, "mountPath": path})).collect();
    json!({"volumeMounts": list})
}

/// Waits until the log of the pod's only container has a line `end`, and returns it.
fn log_until(kubectl: &Kubectl, pod: &str, end: &str) -> String {
    until(Duration::from_secs(20), "the container has said all", || {
        let log = kubectl.run(&["logs", pod])?;
        if log.lines().any(|line| line == end) { Ok(log) } else { Err(log) }
    })
}
