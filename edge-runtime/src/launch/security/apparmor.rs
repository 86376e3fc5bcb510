//! Which AppArmor profile a container gets (K8s pkg/security/apparmor), and the one that `RuntimeDefault` means.

use std::fs;
use std::io::{self, Write};
use std::process::{Command, Stdio};

use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Pod};

use crate::pod::spec::{containers_of, is_privileged};

/// Name of our own profile in the kernel.
pub const DEFAULT_PROFILE: &str = "sampan-default";

/// Same as containerd's and Docker's profile: everything but the node's kernel and its file systems; processes of the
/// container may trace and signal each other, and the node may signal them.
const DEFAULT_TEXT: &str = "
abi <abi/3.0>,
profile sampan-default flags=(attach_disconnected,mediate_deleted) {
  network,
  capability,
  file,
  umount,
  signal (receive) peer=unconfined,
  signal (send,receive) peer=sampan-default,
  deny @{PROC}/* w,
  deny @{PROC}/{[^1-9],[^1-9][^0-9],[^1-9s][^0-9y][^0-9s],[^1-9][^0-9][^0-9][^0-9/]*}/** w,
  deny @{PROC}/sys/[^kn]** w,
  deny @{PROC}/sys/kernel/{?,??,[^s][^h][^m]**} w,
  deny @{PROC}/sysrq-trigger rwklx,
  deny @{PROC}/kcore rwklx,
  deny mount,
  deny /sys/[^f]*/** wklx,
  deny /sys/f[^s]*/** wklx,
  deny /sys/fs/[^c]*/** wklx,
  deny /sys/fs/c[^g]*/** wklx,
  deny /sys/fs/cg[^r]*/** wklx,
  deny /sys/firmware/** rwklx,
  deny /sys/devices/virtual/powercap/** rwklx,
  deny /sys/kernel/security/** rwklx,
  ptrace (trace,read,tracedby,readby) peer=sampan-default,
}
";

/// AppArmor support of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Support {
    /// The kernel does not have it, or has it disabled.
    #[default]
    Off,
    /// Profiles that an administrator loaded, but no default one: `apparmor_parser` is missing or refused ours.
    LoadedOnly,
    Full,
}

/// Checks the kernel and loads the default profile if it is missing. The second value is a warning for the user.
pub fn detect() -> (Support, Option<String>) {
    let enabled = fs::read_to_string("/sys/module/apparmor/parameters/enabled").unwrap_or_default();
    if !enabled.starts_with('Y') {
        return (Support::Off, None);
    }
    if loaded(DEFAULT_PROFILE) {
        return (Support::Full, None);
    }
    match load() {
        Ok(()) => (Support::Full, None),
        Err(why) => (
            Support::LoadedOnly,
            Some(format!(
                "the default AppArmor profile cannot be loaded ({why}): install apparmor_parser (Debian: apparmor)"
            )),
        ),
    }
}

/// Whether the kernel knows a profile of this name, in any mode.
pub fn loaded(name: &str) -> bool {
    let list = fs::read_to_string("/sys/kernel/security/apparmor/profiles").unwrap_or_default();
    list.lines().any(|line| line.rsplit_once(" (").is_some_and(|(known, _)| known == name))
}

fn load() -> io::Result<()> {
    let spawn = |program: &str| {
        Command::new(program).args(["-Kr"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
    };
    // Not in the path of every service.
    let mut child = spawn("apparmor_parser").or_else(|_| spawn("/usr/sbin/apparmor_parser"))?;
    // The abi of a parser older than 3.0 is the only one it knows.
    let body = if fs::exists("/etc/apparmor.d/abi/3.0").unwrap_or(false) {
        DEFAULT_TEXT
    } else {
        DEFAULT_TEXT.split_once(",\n").map_or(DEFAULT_TEXT, |(_, rest)| rest)
    };
    let variable = "@{PROC}=/proc/\n";
    let written = child.stdin.take().map(|mut pipe| pipe.write_all(with_variable(body, variable).as_bytes()));
    let done = child.wait_with_output()?;
    written.transpose()?;
    match done.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&done.stderr).trim().to_owned())),
    }
}

/// The abi rule must be the first.
fn with_variable(body: &str, variable: &str) -> String {
    body.replacen("profile ", &format!("{variable}profile "), 1)
}

/// Why the pod cannot have the profiles it names, in the kubelet's words.
pub fn refusal(pod: &Pod, support: Support) -> Option<String> {
    if !required(pod) {
        return None;
    }
    if support == Support::Off {
        return Some("Cannot enforce AppArmor: AppArmor is not enabled on the host".to_owned());
    }
    containers_of(pod).filter_map(|container| chosen(pod, container)).find_map(|profile| match profile.type_.as_str() {
        "Localhost" if profile.localhost_profile.as_deref().is_none_or(|name| name.trim().is_empty()) => {
            Some("Cannot enforce AppArmor: invalid empty AppArmor profile name".to_owned())
        }
        "RuntimeDefault" if support == Support::LoadedOnly => {
            Some(format!("Cannot enforce AppArmor: profile {DEFAULT_PROFILE} is not loaded on this node"))
        }
        _ => None,
    })
}

/// A container names a profile that the kernel does not know.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("apparmor profile not found {0}")]
pub struct NotLoaded(String);

/// `process.apparmorProfile`; without a wish the default profile, as containerd does, but never for `privileged`.
///
/// # Errors
/// What the waiting container shows.
pub fn of(
    pod: &Pod,
    container: &Container,
    support: Support,
    is_loaded: impl Fn(&str) -> bool,
) -> Result<Option<String>, NotLoaded> {
    if support == Support::Off {
        return Ok(None);
    }
    let privileged = is_privileged(container);
    let profile = chosen(pod, container);
    match profile.as_ref().map(|p| p.type_.as_str()) {
        Some("Unconfined") => Ok(None),
        Some("Localhost") => {
            let name = profile.and_then(|p| p.localhost_profile).unwrap_or_default();
            if is_loaded(&name) { Ok(Some(name)) } else { Err(NotLoaded(name)) }
        }
        _ => Ok((support == Support::Full && !privileged).then(|| DEFAULT_PROFILE.to_owned())),
    }
}

/// The profile of a pod's first process, as CRI runtimes give it to a sandbox.
pub fn of_pause(support: Support) -> Option<String> {
    (support == Support::Full).then(|| DEFAULT_PROFILE.to_owned())
}

fn required(pod: &Pod) -> bool {
    let confined = |profile: Option<&AppArmorProfile>| profile.is_some_and(|p| p.type_ != "Unconfined");
    let pods = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    confined(pods.and_then(|context| context.app_armor_profile.as_ref()))
        || containers_of(pod).any(|c| {
            confined(c.security_context.as_ref().and_then(|context| context.app_armor_profile.as_ref()))
                || confined(annotated(pod, &c.name).as_ref())
        })
}

fn chosen(pod: &Pod, container: &Container) -> Option<AppArmorProfile> {
    let own = container.security_context.as_ref().and_then(|context| context.app_armor_profile.clone());
    let pods = || pod.spec.as_ref()?.security_context.as_ref()?.app_armor_profile.clone();
    own.or_else(|| annotated(pod, &container.name)).or_else(pods)
}

/// The annotation from before there was a field; static pods may still have it alone.
fn annotated(pod: &Pod, container: &str) -> Option<AppArmorProfile> {
    let key = format!("container.apparmor.security.beta.kubernetes.io/{container}");
    let value = pod.metadata.annotations.as_ref()?.get(&key)?;
    let profile = |type_: &str, name: Option<&str>| {
        Some(AppArmorProfile { type_: type_.to_owned(), localhost_profile: name.map(str::to_owned) })
    };
    match value.as_str() {
        "runtime/default" => profile("RuntimeDefault", None),
        "unconfined" => profile("Unconfined", None),
        other => profile("Localhost", Some(other.strip_prefix("localhost/")?)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(pods: Value, own: Value, annotation: Option<&str>) -> Pod {
        let annotations = annotation.map(|value| json!({"container.apparmor.security.beta.kubernetes.io/c": value}));
        serde_json::from_value(json!({"metadata": {"annotations": annotations},
            "spec": {"securityContext": pods, "containers": [{"name": "c", "securityContext": own}]}}))
        .unwrap()
    }

    fn profile(kind: &str, name: Option<&str>) -> Value {
        json!({"appArmorProfile": {"type": kind, "localhostProfile": name}})
    }

    fn got(pod: &Pod, support: Support) -> Result<Option<String>, String> {
        let got = of(pod, &pod.spec.as_ref().unwrap().containers[0], support, |name| name == "mine");
        got.map_err(|error| error.to_string())
    }

    #[test]
    fn without_the_kernels_help_only_unconfined_passes() {
        let host = Some("Cannot enforce AppArmor: AppArmor is not enabled on the host".to_owned());
        assert_eq!(refusal(&pod(json!({}), json!({}), None), Support::Off), None);
        assert_eq!(refusal(&pod(profile("Unconfined", None), json!({}), None), Support::Off), None);
        assert_eq!(refusal(&pod(json!({}), profile("RuntimeDefault", None), None), Support::Off), host);
        assert_eq!(refusal(&pod(json!({}), json!({}), Some("localhost/x")), Support::Off), host);
        assert_eq!(refusal(&pod(json!({}), json!({}), Some("unconfined")), Support::Off), None);
        let default = pod(profile("RuntimeDefault", None), json!({}), None);
        assert!(refusal(&default, Support::LoadedOnly).unwrap().contains(DEFAULT_PROFILE));
        assert_eq!(refusal(&default, Support::Full), None);
    }

    #[test]
    fn precedence_and_default() {
        let default = Ok(Some(DEFAULT_PROFILE.to_owned()));
        assert_eq!(got(&pod(json!({}), json!({}), None), Support::Full), default);
        assert_eq!(got(&pod(json!({}), json!({}), None), Support::LoadedOnly), Ok(None));
        assert_eq!(got(&pod(json!({}), json!({"privileged": true}), None), Support::Full), Ok(None));
        assert_eq!(got(&pod(profile("RuntimeDefault", None), json!({}), Some("unconfined")), Support::Full), Ok(None));
        let mine = pod(json!({}), profile("Localhost", Some("mine")), Some("unconfined"));
        assert_eq!(got(&mine, Support::LoadedOnly), Ok(Some("mine".to_owned())));
        let other = pod(json!({}), profile("Localhost", Some("other")), None);
        assert_eq!(got(&other, Support::Full), Err("apparmor profile not found other".to_owned()));
    }
}
