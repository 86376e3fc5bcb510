//! Which seccomp profile a container gets (K8s pkg/kubelet/kuberuntime/helpers.go, `getSeccompProfile`), and the
//! reading of profiles from the node's folder.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use k8s_openapi::api::core::v1::{Container, Pod, SeccompProfile};
use nix::fcntl::OFlag;
use oci_spec::runtime::LinuxSeccomp;

use crate::launch::error::ContainerError;
use crate::launch::oci_spec::Seccomp;
use crate::sys::beneath::open_beneath;

/// More than any profile that a kernel takes.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Choice {
    Unconfined,
    RuntimeDefault,
    /// Path below the folder of profiles.
    Localhost(String),
}

/// The filter of `container`. `folder` holds the profiles that `Localhost` names; `by_default` is the node's
/// `seccomp-default`.
///
/// # Errors
/// Shown by the waiting container: no profile is named, or it does not exist.
pub fn of(pod: &Pod, container: &Container, folder: &Path, by_default: bool) -> Result<Seccomp, ContainerError> {
    match choose(pod, container, by_default).map_err(ContainerError::config)? {
        Choice::Unconfined => Ok(Seccomp::Unconfined),
        Choice::RuntimeDefault => Ok(Seccomp::RuntimeDefault),
        Choice::Localhost(name) => {
            let profile = load(folder, &name).map_err(ContainerError::create)?;
            Ok(Seccomp::Profile(Box::new(profile)))
        }
    }
}

fn choose(pod: &Pod, container: &Container, by_default: bool) -> Result<Choice, String> {
    let own = container.security_context.as_ref();
    if own.and_then(|context| context.privileged) == Some(true) {
        return Ok(Choice::Unconfined);
    }
    let pods = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let field = own.and_then(|c| c.seccomp_profile.as_ref()).or(pods.and_then(|c| c.seccomp_profile.as_ref()));
    match field {
        Some(SeccompProfile { type_, localhost_profile }) => match type_.as_str() {
            "RuntimeDefault" => Ok(Choice::RuntimeDefault),
            "Localhost" => match localhost_profile.as_deref() {
                Some(name) if !name.is_empty() => Ok(Choice::Localhost(name.to_owned())),
                _ => Err("localhostProfile must be set if seccompProfile type is Localhost.".to_owned()),
            },
            _ => Ok(Choice::Unconfined),
        },
        None if by_default => Ok(Choice::RuntimeDefault),
        None => Ok(Choice::Unconfined),
    }
}

/// Links may lead about inside the folder, not out of it.
fn load(folder: &Path, name: &str) -> Result<LinuxSeccomp, String> {
    let path = folder.join(name.trim_start_matches('/'));
    let error = |why: &dyn std::fmt::Display| format!("cannot load seccomp profile {:?}: {why}", path.display());
    let root = File::open(folder).map_err(|why| error(&why))?;
    let file = open_beneath(&root, name, OFlag::O_RDONLY | OFlag::O_NONBLOCK);
    let file = file.map_err(|errno| error(&std::io::Error::from(errno)))?;
    let mut text = String::new();
    File::from(file).take(MAX_BYTES).read_to_string(&mut text).map_err(|why| error(&why))?;
    serde_json::from_str(&text).map_err(|why| error(&why))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn chosen(pods: Value, own: Value, by_default: bool) -> Result<Choice, String> {
        let pod: Pod = serde_json::from_value(json!({"spec": {"securityContext": pods, "containers": [
            {"name": "c", "securityContext": own}]}}))
        .unwrap();
        choose(&pod, &pod.spec.as_ref().unwrap().containers[0], by_default)
    }

    fn profile(kind: &str) -> Value {
        json!({"seccompProfile": {"type": kind}})
    }

    #[test]
    fn the_container_comes_before_the_pod_and_both_before_the_node() {
        assert_eq!(chosen(json!({}), json!({}), false), Ok(Choice::Unconfined));
        assert_eq!(chosen(json!({}), json!({}), true), Ok(Choice::RuntimeDefault));
        assert_eq!(chosen(profile("Unconfined"), json!({}), true), Ok(Choice::Unconfined));
        assert_eq!(chosen(profile("RuntimeDefault"), json!({}), false), Ok(Choice::RuntimeDefault));
        assert_eq!(chosen(profile("RuntimeDefault"), profile("Unconfined"), false), Ok(Choice::Unconfined));
        let local = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "a/b.json"}});
        assert_eq!(chosen(profile("RuntimeDefault"), local, false), Ok(Choice::Localhost("a/b.json".into())));
        assert!(chosen(json!({}), profile("Localhost"), false).unwrap_err().starts_with("localhostProfile must be"));
        let mut privileged = profile("RuntimeDefault");
        privileged["privileged"] = json!(true);
        assert_eq!(chosen(json!({}), privileged, true), Ok(Choice::Unconfined));
    }

    #[test]
    fn profiles_stay_in_their_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("seccomp");
        std::fs::create_dir(&folder).unwrap();
        let text = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
            {"names": ["mkdir"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}"#;
        std::fs::write(folder.join("a.json"), text).unwrap();
        std::fs::write(dir.path().join("out.json"), text).unwrap();
        std::os::unix::fs::symlink("../out.json", folder.join("link.json")).unwrap();
        std::fs::write(folder.join("bad.json"), r#"{"defaultAction": "SCMP_ACT_MAYBE"}"#).unwrap();
        assert_eq!(load(&folder, "a.json").unwrap().syscalls().as_ref().unwrap().len(), 1);
        for wrong in ["none.json", "../out.json", "link.json", "/etc/passwd", "bad.json", "."] {
            let error = load(&folder, wrong).unwrap_err();
            assert!(error.starts_with("cannot load seccomp profile \""), "{error}");
        }
        assert!(load(&folder, "bad.json").unwrap_err().contains("SCMP_ACT_MAYBE"));
    }
}
