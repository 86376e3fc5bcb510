//! What the kernel has to have beside cgroups: file systems and network devices, built in or as modules.

use std::path::Path;

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

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    release: String,
    /// Of those wanted: there (loaded, built in, or a module that can be loaded), or missing; the others are not known.
    there: Vec<&'static str>,
    missing: Vec<&'static str>,
}

pub(crate) fn look() -> Facts {
    let release = text("/proc/sys/kernel/osrelease");
    let folder = Path::new("/lib/modules").join(&release);
    let [built_in, loadable] = ["modules.builtin", "modules.dep"].map(|name| text(folder.join(name)));
    let (loaded, filesystems) = (text("/proc/modules"), text("/proc/filesystems"));
    let known = !loadable.is_empty() || !built_in.is_empty();
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
        } else if known || !Path::new("/proc/modules").exists() {
            facts.missing.push(name);
        }
    }
    facts
}

pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
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
            "modprobe {name}; where there is no such module, install the distribution's kernel \
             (apt-get install linux-image-$(dpkg --print-architecture)), or linux-modules-extra"
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
    fn a_kernel_without_what_pods_need_is_found() {
        let with = |missing: &[&'static str]| {
            judge(&Facts { release: "6.1.0".into(), there: vec!["overlay"], missing: missing.to_vec() })
        };
        assert_fine(&with(&[]));
        for name in ["overlay", "bridge", "veth", "nf_tables", "nf_nat"] {
            assert_found(&with(&[name]), "kernel", Severity::Error, &format!("modprobe {name}"));
        }
        assert_found(&with(&["br_netfilter"]), "kernel", Severity::Info, "");
    }

    #[test]
    fn this_machine_runs_containers_and_so_has_overlay() {
        assert!(look().there.contains(&"overlay"));
    }
}
