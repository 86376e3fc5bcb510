//! Problems of the node, and of the page itself. Pure.

use super::look::Facts;

/// Returns the problems of the node, and the reasons why the page is incomplete.
pub(super) fn problems(facts: &Facts) -> Vec<String> {
    let mut found = Vec::new();
    match (facts.daemon.pid, facts.daemon.ready) {
        (None, _) => found.push(
            "edge-runtime does not run: the page shows its last state. Containers go on, but none is started again. \
             systemctl start edge-runtime"
                .to_owned(),
        ),
        (Some(pid), None) => {
            found.push(format!("edge-runtime (process {pid}) runs and does not answer: {}", facts.daemon.words));
        }
        (Some(_), Some(false)) => {
            let failed: Vec<&str> = facts.daemon.words.lines().filter_map(|line| line.strip_prefix("[-]")).collect();
            found.push(format!("The node is not ready: {}", failed.join("; ")));
        }
        (Some(_), Some(true)) => {}
    }
    if !facts.trouble.is_empty() {
        found.push(format!("What the node keeps cannot be read: {}", facts.trouble));
    }
    if facts.name.is_none() {
        found.push("This device has not joined a cluster: only its own manifests run.".to_owned());
    }
    found
}
