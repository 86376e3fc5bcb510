//! The pod of a process: a node puts the pod's uid into the name of its cgroup. A process that may write cgroups, such
//! as a privileged container, can forge it.

use std::fs::File;
use std::io::Read;

/// Bytes of a process's list of cgroups that are looked at.
const MOST: u64 = 8 << 10;

/// The uid of the pod that this process is of; empty if it is of none.
pub(super) fn of(pid: i32) -> String {
    let mut text = String::new();
    let read = File::open(format!("/proc/{pid}/cgroup")).and_then(|file| file.take(MOST).read_to_string(&mut text));
    read.ok().and_then(|_| parse(&text)).unwrap_or_default()
}

/// `podUID` of cgroupfs, or `…-podUID.slice` of systemd, which has `_` for `-` (cgroups(7), systemd.slice(5)).
fn parse(cgroups: &str) -> Option<String> {
    let uid = |part: &str| {
        let (_, rest) = part.strip_suffix(".slice").unwrap_or(part).rsplit_once("pod")?;
        let is_uid = (32..=36).contains(&rest.len())
            && rest.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'-' | b'_'));
        is_uid.then(|| rest.replace('_', "-"))
    };
    cgroups.lines().flat_map(|line| line.split('/')).find_map(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_uid_is_parsed_from_the_cgroup_path() {
        const UID: &str = "0d9ef2a6-7a3c-4a0e-8a53-0a7a5c1f2b11";
        let escaped = UID.replace('-', "_");
        for path in [
            format!("12:memory:/sampan/besteffort/pod{UID}/c1\n0::/x\n"),
            format!("0::/sampan/pod{UID}/c1"),
            format!("0::/sampan.slice/sampan-pod{escaped}.slice/sampan-c1.scope"),
            format!("1:name=systemd:/\n0::/sampan.slice/sampan-burstable.slice/sampan-burstable-pod{escaped}.slice/x"),
        ] {
            assert_eq!(parse(&path).as_deref(), Some(UID), "{path}");
        }
        for path in ["", "0::/", "0::/user.slice/podman", "0::/podzzz", "0::/sampan/pod"] {
            assert_eq!(parse(path), None, "{path}");
        }
        assert_eq!(of(i32::try_from(std::process::id()).expect("a pid")), "");
        assert_eq!(of(-1), "");
    }
}
