//! Priority of this process when the kernel kills for memory: `/proc/self/oom_score_adj`, proc(5). `launch::resources`
//! computes that of containers.

use std::path::Path;
use std::{fs, io};

use serde_json::Value;

use super::host;
use crate::from_json::from_json;

/// OOM score of the node itself (K8s pkg/kubelet/qos/policy.go, KubeletOOMScoreAdj). Child processes inherit it; the
/// monitor keeps it, since only the monitor knows how containers end.
pub const NODE: i32 = -999;

/// The highest value: of a BestEffort pod as well, of which the larger is killed.
const FIRST: i32 = 1000;

const FILE: &str = "/proc/self/oom_score_adj";

/// Makes this process one of the last to be killed.
///
/// # Errors
/// Lowering it requires `CAP_SYS_RESOURCE`.
pub fn protect() -> io::Result<()> {
    if host::oom_score_adj() <= NODE { Ok(()) } else { set(NODE) }
}

/// Makes a helper whose memory depends on untrusted input the first to be killed: a pod must not pay for the memory of
/// an image, a volume or another pod's files. The daemon starts it again.
pub fn go_first() {
    // To raise it is always allowed.
    if let Err(error) = set(FIRST) {
        log::debug!("{FILE}: {error}");
    }
}

/// What the node started is an ordinary process again.
pub fn give_up_protection() {
    if host::oom_score_adj() <= NODE {
        // To raise it is always allowed.
        let _ = set(0);
    }
}

/// Makes a process that this one has started an ordinary one.
pub fn unprotect(id: u32) {
    if host::oom_score_adj() < 0 {
        // Raising it is always permitted; an ended process does not need it.
        let _ = fs::write(format!("/proc/{id}/oom_score_adj"), "0");
    }
}

/// Takes the place of the container that `bundle` describes (OCI runtime specification, config.md, `oomScoreAdj`).
///
/// # Errors
/// The bundle cannot be read, or its value is below what this process may have.
pub fn become_as_container(bundle: &Path) -> io::Result<()> {
    let config: Value = from_json(&fs::read(bundle.join("config.json"))?)?;
    let wanted = config["process"]["oomScoreAdj"].as_i64().and_then(|value| i32::try_from(value).ok());
    wanted.map_or(Ok(()), set)
}

fn set(value: i32) -> io::Result<()> {
    fs::write(FILE, value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn score_is_read_from_the_bundle() {
        let before = host::oom_score_adj();
        let bundle = tempfile::tempdir().unwrap();
        let says = |config: &str| fs::write(bundle.path().join("config.json"), config).unwrap();
        says("{\"process\": {}}");
        become_as_container(bundle.path()).unwrap();
        assert_eq!(host::oom_score_adj(), before);
        // Its own value anyone may set.
        says(&format!("{{\"process\": {{\"oomScoreAdj\": {before}}}}}"));
        become_as_container(bundle.path()).unwrap();
        assert_eq!(host::oom_score_adj(), before);
        says("nonsense");
        become_as_container(bundle.path()).unwrap_err();
    }
}
