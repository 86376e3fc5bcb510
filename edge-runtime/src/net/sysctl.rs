//! The kernel's switches as files below `/proc/sys`: for forwarding and IPv6, and those that a pod asks for.

use std::fs;
use std::path::Path;

use super::NetError;
use crate::pod::sysctls;

const SYS: &str = "/proc/sys/net";

/// The reason if this host lacks IPv6.
pub fn without_ipv6() -> Option<&'static str> {
    let conf = Path::new(SYS).join("ipv6/conf");
    if !conf.is_dir() {
        return Some("the kernel has no IPv6 (module ipv6, or ipv6.disable=1 on its command line)");
    }
    (read(&conf.join("all/disable_ipv6")) == "1")
        .then_some("IPv6 is switched off by net.ipv6.conf.all.disable_ipv6=1: set it to 0 and restart")
}

/// Lets the host forward packets of one family.
///
/// A host that forwards IPv6 ignores router advertisements, by which most boards get their own address. So links that
/// accept them now (`accept_ra` 1) are set to accept them anyway (2).
///
/// # Errors
/// A switch cannot be set.
pub fn forward(v4: bool) -> Result<(), NetError> {
    if v4 {
        return set(&Path::new(SYS).join("ipv4/ip_forward"), "1");
    }
    let conf = Path::new(SYS).join("ipv6/conf");
    let all = conf.join("all/forwarding");
    if read(&all) == "1" {
        return Ok(());
    }
    for link in fs::read_dir(&conf).into_iter().flatten().flatten() {
        let accept = link.path().join("accept_ra");
        if read(&accept) == "1" {
            set(&accept, "2")?;
        }
    }
    set(&all, "1")
}

/// Makes the bridge ignore router advertisements and redirects, which pods can send and which a host that is not a
/// router trusts (CVE-2020-10749): only this node sets the bridge's addresses and routes. Without IPv6 addresses the
/// bridge has IPv6 disabled.
///
/// # Errors
/// A switch cannot be set.
pub fn keep_to_itself(bridge: &str, v6: bool) -> Result<(), NetError> {
    let conf = Path::new(SYS).join("ipv6/conf").join(bridge);
    if conf.is_dir() {
        for name in ["accept_ra", "accept_redirects", "autoconf"] {
            set(&conf.join(name), "0")?;
        }
        set(&conf.join("disable_ipv6"), if v6 { "0" } else { "1" })?;
    }
    set(&Path::new(SYS).join("ipv4/conf").join(bridge).join("accept_redirects"), "0")
}

/// Prepares a pod's link; called inside the pod's network namespace, before the link is up. A neighbour's router
/// advertisements and redirects are not for it either.
pub fn in_pod(link: &str, v6: bool) {
    let (v4_conf, v6_conf) = (Path::new(SYS).join("ipv4/conf").join(link), Path::new(SYS).join("ipv6/conf").join(link));
    // For IPv4, either of the two enables redirects.
    let all = Path::new(SYS).join("ipv4/conf/all");
    let mut switches = vec![(v4_conf.join("accept_redirects"), "0"), (all.join("accept_redirects"), "0")];
    if v6_conf.is_dir() {
        switches.extend(["accept_ra", "accept_redirects"].map(|name| (v6_conf.join(name), "0")));
    }
    if v6 {
        switches.extend(["disable_ipv6", "accept_dad"].map(|name| (v6_conf.join(name), "0")));
    }
    for (path, value) in switches {
        if let Err(error) = set(&path, value) {
            // Setting the address is next, and reports an error if it fails.
            log::debug!("{error}");
        }
    }
}

/// Writes one of a pod's in the calling thread's namespaces.
///
/// # Errors
/// The kernel does not have that name or refuses the value; the message names both.
pub fn write(name: &str, value: &str) -> Result<(), String> {
    let path = sysctls::file(name).ok_or_else(|| format!("sysctl {name:?} is no name below /proc/sys"))?;
    fs::write(&path, value).map_err(|error| format!("sysctl {name} = {value:?}: {error}"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Writes only what differs: a read-only `/proc/sys` that is right already is fine.
fn set(path: &Path, value: &str) -> Result<(), NetError> {
    if read(path) == value {
        return Ok(());
    }
    fs::write(path, value).map_err(|source| NetError::path("set", path, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_sysctl() {
        assert!(write("kernel.no-such", "1").unwrap_err().contains("kernel.no-such"));
        assert!(write("net..x", "1").unwrap_err().contains("is no name below"));
    }
}
