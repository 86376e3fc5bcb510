//! The kernel's cgroup controllers. Boards of the Raspberry kind boot without the one for memory, and each boot loader has its
//! own file for the kernel's command line.

use std::path::{Path, PathBuf};

use crate::doctor::finding::Finding;
use crate::doctor::host::text;

const CHECK: &str = "cgroups";
/// Files with the kernel's command line, of the board's firmware first.
const FILES: [&str; 5] = [
    "/boot/firmware/cmdline.txt",
    "/boot/cmdline.txt",
    "/boot/armbianEnv.txt",
    "/boot/extlinux/extlinux.conf",
    "/etc/default/grub",
];

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// `None` without a cgroup file system.
    version: Option<u8>,
    controllers: Vec<String>,
    command_line: String,
    /// File with the kernel command line, if known.
    file: Option<PathBuf>,
}

pub(crate) fn look() -> Facts {
    let v2 = text("/sys/fs/cgroup/cgroup.controllers");
    let v1 = text("/proc/cgroups");
    let mounted = text("/proc/self/mountinfo");
    let is_v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let of_v1 = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let name = words.next().filter(|name| !name.starts_with('#'))?;
        (words.nth(2) == Some("1") && hierarchies(&mounted).any(|one| one == name)).then(|| name.to_owned())
    };
    let controllers: Vec<String> = match is_v2 {
        true => v2.split_ascii_whitespace().map(str::to_owned).collect(),
        false => v1.lines().filter_map(of_v1).collect(),
    };
    Facts {
        version: if is_v2 { Some(2) } else { mounted.contains(" - cgroup ").then_some(1) },
        controllers,
        command_line: text("/proc/cmdline"),
        file: FILES.iter().map(PathBuf::from).find(|file| file.exists()),
    }
}

/// Controllers of version 1 that are mounted: options of their file systems (proc_pid_mountinfo(5)).
fn hierarchies(mounted: &str) -> impl Iterator<Item = &str> {
    let of_cgroups = mounted.lines().filter_map(|line| line.split_once(" - cgroup "));
    of_cgroups.filter_map(|(_, rest)| rest.split(' ').nth(1)).flat_map(|options| options.split(','))
}

pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let Some(version) = facts.version else {
        return vec![Finding::error(
            CHECK,
            "no cgroup file system is mounted at /sys/fs/cgroup",
            "without cgroups no container can be started",
            "mount -t cgroup2 none /sys/fs/cgroup (systemd does so by itself; OpenRC: rc-update add cgroups)",
        )];
    };
    let has = |name: &str| facts.controllers.iter().any(|one| one == name);
    let missing: Vec<&str> = ["memory", "cpu", "pids"].into_iter().filter(|name| !has(name)).collect();
    if missing.is_empty() {
        return vec![Finding::ok(CHECK, format!("version {version} with cpu, memory and pids"))];
    }
    let what = format!("the kernel has no cgroup controller for {}", missing.join(", "));
    let why = "limits and requests of pods for it are not kept, and one pod can take everything from the others";
    vec![Finding::warning(CHECK, what, why, cure(facts, &missing))]
}

fn cure(facts: &Facts, missing: &[&str]) -> String {
    let disabled = facts.command_line.split(' ').find(|word| word.starts_with("cgroup_disable="));
    let words = match missing.contains(&"memory") {
        true => "cgroup_enable=memory cgroup_memory=1".to_owned(),
        false => missing.iter().map(|name| format!("cgroup_enable={name}")).collect::<Vec<_>>().join(" "),
    };
    let edit = match facts.file.as_ref().and_then(|file| file.to_str()) {
        Some(file @ "/etc/default/grub") => {
            format!("in {file} add to GRUB_CMDLINE_LINUX: {words}; then: update-grub && reboot")
        }
        Some(file @ "/boot/armbianEnv.txt") => format!("in {file} add to the line extraargs=: {words}; then: reboot"),
        Some(file @ "/boot/extlinux/extlinux.conf") => {
            format!("in {file} add to the line APPEND: {words}; then: reboot")
        }
        Some(file) => format!("in {file} add at the end of its one line: {words}; then: reboot"),
        None => format!("add to the kernel's command line: {words}; then reboot"),
    };
    match disabled {
        Some(word) => format!("{edit} (and take out {word})"),
        None => edit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;
    use crate::doctor::finding::tests::{assert_fine, assert_found};

    fn with(controllers: &str, file: &str) -> Facts {
        Facts {
            version: Some(2),
            controllers: controllers.split(' ').map(str::to_owned).collect(),
            command_line: "root=/dev/mmcblk0p2 cgroup_disable=memory".into(),
            file: Some(file.into()),
        }
    }

    #[test]
    fn each_boot_loader_has_its_own_file_and_line() {
        for (file, cure) in [
            (
                "/boot/firmware/cmdline.txt",
                "in /boot/firmware/cmdline.txt add at the end of its one line: cgroup_enable=memory",
            ),
            ("/boot/cmdline.txt", "in /boot/cmdline.txt add at the end"),
            ("/boot/armbianEnv.txt", "extraargs="),
            ("/boot/extlinux/extlinux.conf", "APPEND"),
            ("/etc/default/grub", "update-grub"),
        ] {
            let found = judge(&with("cpuset cpu io pids", file));
            assert_found(&found, "cgroups", Severity::Warning, cure);
            assert_found(&found, "cgroups", Severity::Warning, "take out cgroup_disable=memory");
        }
        let unknown = Facts { file: None, ..with("memory cpu", "x") };
        assert_found(&judge(&unknown), "cgroups", Severity::Warning, "kernel's command line: cgroup_enable=pids");
    }

    #[test]
    fn a_host_without_any_cannot_work_and_one_with_all_can() {
        assert_found(&judge(&Facts::default()), "cgroups", Severity::Error, "mount -t cgroup2");
        assert_fine(&judge(&with("cpu memory pids", "/boot/cmdline.txt")));
    }

    #[test]
    fn only_mounted_controllers_count() {
        let mounted = "30 20 0:26 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n31 20 0:27 / /srv/memory rw - tmpfs memory rw\n\
                       32 20 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n";
        let all: Vec<&str> = hierarchies(mounted).filter(|one| *one != "rw").collect();
        assert_eq!(all, ["cpuset", "cpu", "cpuacct"]);
        let no_cpu = hierarchies(mounted.lines().next().unwrap()).any(|one| one == "cpu");
        assert!(!no_cpu);
    }

    #[test]
    fn this_machine_has_cgroups() {
        let facts = look();
        assert!(facts.version.is_some() && facts.controllers.iter().any(|one| one == "cpu"), "{facts:?}");
    }
}
