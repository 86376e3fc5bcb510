//! Kernel features beside cgroups: file systems and network devices, built in or as modules.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use edge_runtime::net::netlink::link::{self, VethPair};
use edge_runtime::net::netlink::{Socket, nftables};
use nix::libc;
use nix::sched::{CloneFlags, unshare};

use crate::doctor::finding::Finding;
use crate::doctor::host::text;

const CHECK: &str = "kernel";
/// Name, whether a node works without, and what for.
const WANTED: [(&str, bool, &str); 6] = [
    ("overlay", false, "images cannot be put together into a container's root file system"),
    ("bridge", false, "pods have no network (but host-network pods)"),
    ("veth", false, "pods have no network (but host-network pods)"),
    ("nf_tables", false, "pods reach nothing beyond this machine, and Services lead nowhere"),
    ("nf_nat", false, "pods reach nothing beyond this machine, and Services lead nowhere"),
    ("br_netfilter", true, "NetworkPolicies and Services between pods of one bridge need the node's other way"),
];

/// Oldest supported kernel. Older ones lack calls for which the node has no other way.
const OLDEST: (u32, u32) = (4, 19);

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    release: String,
    /// Wanted features that are there (loaded, built in, or a loadable module), or missing; the others are unknown.
    there: Vec<&'static str>,
    missing: Vec<&'static str>,
}

pub(crate) fn look() -> Facts {
    let release = text("/proc/sys/kernel/osrelease");
    let folder = Path::new("/lib/modules").join(&release);
    let [built_in, loadable] = ["modules.builtin", "modules.dep"].map(|name| text(folder.join(name)));
    let (loaded, filesystems) = (text("/proc/modules"), text("/proc/filesystems"));
    let known = !loadable.is_empty() || !built_in.is_empty();
    let tried = tried();
    let mut facts = Facts { release, ..Facts::default() };
    for (name, ..) in WANTED {
        let is_file = |list: &str| {
            let stem = format!("/{name}.ko");
            // Names of modules have either sign.
            list.contains(&stem) || list.contains(&stem.replace('_', "-"))
        };
        let is_loaded = loaded.lines().any(|line| line.split(' ').next() == Some(name));
        let is_filesystem = filesystems.lines().any(|line| line.split_ascii_whitespace().last() == Some(name));
        let is_there = Path::new("/sys/module").join(name).exists();
        if is_loaded || is_filesystem || is_there || is_file(&built_in) || is_file(&loadable) {
            facts.there.push(name);
        } else {
            match tried.iter().find(|(one, _)| *one == name) {
                Some((_, true)) => facts.there.push(name),
                Some((_, false)) => facts.missing.push(name),
                // A kernel without modules does not list built-in features.
                None if known => facts.missing.push(name),
                None => {}
            }
        }
    }
    facts
}

/// Features that the kernel has, tried in a separate network namespace where they disturb nothing. Empty without the
/// right to create one.
fn tried() -> Vec<(&'static str, bool)> {
    let work = || {
        if unshare(CloneFlags::CLONE_NEWNET).is_err() {
            return Vec::new();
        }
        let Ok(mut socket) = Socket::open() else { return Vec::new() };
        let bridge = link::add_bridge(&mut socket, "doctor0", [2, 0, 0, 0, 0, 1], 1500);
        let nft = Socket::open_netfilter().and_then(|mut socket| nftables::generation(&mut socket));
        let tried = [("bridge", bridge), ("veth", add_veth(&mut socket)), ("nf_tables", nft.map(drop))];
        // Other errors of the attempt do not concern the kernel.
        let lacks = |error: &io::Error| {
            matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::ENODEV))
        };
        let known = tried.into_iter().filter_map(|(name, done)| match done {
            Ok(()) => Some((name, true)),
            Err(error) => lacks(&error).then_some((name, false)),
        });
        known.collect()
    };
    // A thread may leave the namespace of the others.
    std::thread::spawn(work).join().unwrap_or_default()
}

fn add_veth(socket: &mut Socket) -> io::Result<()> {
    let namespace = File::open("/proc/thread-self/ns/net")?;
    let pair = VethPair {
        host: "doctor1",
        master: link::named(socket, "doctor0")?.index,
        peer: "doctor2",
        peer_namespace: namespace.as_fd(),
        peer_address: [2, 0, 0, 0, 0, 2],
        mtu: 1500,
    };
    link::add_veth(socket, &pair)
}

/// Major and minor number of a release such as `4.9.253-tegra`; `None` if it does not begin with them.
fn numbers(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Debian's package of the newest kernel for this architecture.
fn debian_package(arch: &str) -> &'static str {
    match arch {
        "x86_64" => "linux-image-amd64",
        "aarch64" => "linux-image-arm64",
        _ => "linux-image-armmp",
    }
}

pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if numbers(&facts.release).is_some_and(|release| release < OLDEST) {
        found.push(Finding::warning(
            CHECK,
            format!("the kernel {} is older than {}.{}", facts.release, OLDEST.0, OLDEST.1),
            "such kernels are not supported: pods may fail to start",
            "install a newer kernel: the distribution's, or a newer image of the board's vendor",
        ));
    }
    for (name, optional, why) in WANTED {
        if !facts.missing.contains(&name) {
            continue;
        }
        let what = format!("the kernel {} has no {name}", facts.release);
        if optional {
            found.push(Finding::info(CHECK, what));
            continue;
        }
        let cure = format!(
            "modprobe {name}; if there is no such module: reboot, if the kernel was upgraded since the last boot, or install the \
             distribution's kernel (Debian: apt-get install {}; Ubuntu: apt-get install linux-modules-extra-{})",
            debian_package(std::env::consts::ARCH),
            facts.release
        );
        found.push(Finding::error(CHECK, what, why, cure));
    }
    if !found.iter().any(|one| !one.cure.is_empty()) {
        let what = match facts.there.is_empty() {
            true => format!("{}; it does not say which modules it has", facts.release),
            false => format!("{} with {}", facts.release, facts.there.join(", ")),
        };
        found.push(Finding::ok(CHECK, what));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;
    use crate::doctor::finding::tests::{assert_fine, assert_found};

    #[test]
    fn missing_kernel_features_are_found() {
        let with = |missing: &[&'static str]| {
            judge(&Facts { release: "6.1.0".into(), there: vec!["overlay"], missing: missing.to_vec() })
        };
        assert_fine(&with(&[]));
        for name in ["overlay", "bridge", "veth", "nf_tables", "nf_nat"] {
            assert_found(&with(&[name]), "kernel", Severity::Error, &format!("modprobe {name}"));
        }
        // Modules of a running kernel that was upgraded are gone until the next boot.
        assert_found(&with(&["veth"]), "kernel", Severity::Error, "reboot, if the kernel was upgraded");
        assert_eq!(["x86_64", "arm"].map(debian_package), ["linux-image-amd64", "linux-image-armmp"]);
        assert_found(&with(&["br_netfilter"]), "kernel", Severity::Info, "");
    }

    #[test]
    fn kernel_older_than_the_oldest_supported_is_found() {
        let of = |release: &str| judge(&Facts { release: release.into(), there: vec!["overlay"], missing: Vec::new() });
        for old in ["4.9.253-tegra", "3.14.52", "4.18-rc1"] {
            assert_found(&of(old), "kernel", Severity::Warning, "newer kernel");
        }
        for fine in ["4.19.0-18-arm64", "5.10", "6.1.21-v8+", "10.0.1", "", "vendor"] {
            assert_fine(&of(fine));
        }
    }

    #[test]
    fn kernel_of_this_machine_has_all_features() {
        let facts = look();
        assert!(facts.there.contains(&"overlay") && facts.missing.is_empty(), "{facts:?}");
    }
}
