//! Defaults that depend on the host or on `--root`, and the checks of single values.

use std::path::{Path, PathBuf};

use crate::net::{NetError, Subnet};

/// What one container may log. At this rate it writes 1 TB a year, which a small card endures for some years; 100 MB/s,
/// which the disk would take, wear it out in weeks. Some hundred usual lines a second pass, and five minutes' worth may
/// come at once (10 MB).
pub(super) const LOG_BYTES_PER_SECOND: u64 = 32 << 10;

/// Distinguishes nodes that share a host: nothing for `/`, otherwise 8 hex digits of the root's path.
#[must_use]
pub fn instance_suffix(root: &Path) -> Option<String> {
    if root == Path::new("/") {
        return None;
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, root.as_os_str().as_encoded_bytes());
    Some(digest.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect())
}

pub(super) fn bridge_name(suffix: Option<&str>) -> String {
    suffix.map_or_else(|| "sampan0".into(), |suffix| format!("smp-{suffix}"))
}

pub(super) fn cgroup_parent(suffix: Option<&str>) -> String {
    suffix.map_or_else(|| "/sampan".into(), |suffix| format!("/sampan-{suffix}"))
}

/// 10.85.0.0/24 for the only node of a host; a /24 of 10.86.0.0 to 10.101.255.0 by the root's path otherwise.
pub(super) fn subnet(root: &Path) -> String {
    if root == Path::new("/") {
        return "10.85.0.0/24".into();
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, root.as_os_str().as_encoded_bytes());
    let bytes = digest.as_ref();
    format!("10.{}.{}.0/24", 86 + bytes[0] % 16, bytes[1])
}

/// One subnet, or one of each family; the first one's family is the pods' main one.
pub(super) fn parse_subnets(texts: &[String]) -> Result<Vec<Subnet>, String> {
    let subnets: Vec<Subnet> =
        texts.iter().map(|text| text.parse().map_err(|error: NetError| error.to_string())).collect::<Result<_, _>>()?;
    match subnets.as_slice() {
        [_] => Ok(subnets),
        [one, other] if one.is_ipv4() != other.is_ipv4() => Ok(subnets),
        _ => Err("give one subnet, or one of IPv4 and one of IPv6".into()),
    }
}

/// Where distributions (Debian, Fedora) and Kubernetes' own packages put plugins.
pub(super) fn cni_bin_dirs() -> Vec<PathBuf> {
    ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"].map(PathBuf::from).into()
}

/// As many starts at once as cores, two at the least: one waits for the kernel while another computes.
pub(super) fn parallel_starts() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 4))
}

pub(super) fn host_name() -> String {
    nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default().to_lowercase()
}

/// A node name is a DNS-1123 subdomain (Kubernetes: `ValidateNodeName`).
pub(super) fn check_node_name(name: &str) -> Result<(), String> {
    let label_ok = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() <= 253 && name.split('.').all(label_ok) {
        Ok(())
    } else {
        Err(format!("'{name}' is not a lower-case DNS name; set node-name or use --node"))
    }
}

pub(super) fn check_taint(taint: &str) -> Result<(), String> {
    let effect = taint.rsplit_once(':').map(|(_, effect)| effect);
    match effect {
        Some("NoSchedule" | "PreferNoSchedule" | "NoExecute") => Ok(()),
        _ => Err(format!("'{taint}' is not KEY=VALUE:EFFECT with effect NoSchedule, PreferNoSchedule or NoExecute")),
    }
}
