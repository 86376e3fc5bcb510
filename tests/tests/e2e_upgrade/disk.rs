//! A disk that fails at each step of an upgrade: the old version runs at the end, and the next upgrade works.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sampan_tests::{Cluster, EdgeNode, can_run, until};

use super::installed::Bundle;
use super::set_up;

const PAGE: u64 = 4096;

/// A separate file system for the versions.
struct Disk {
    at: PathBuf,
}

impl Disk {
    fn mount(node: &EdgeNode) -> Self {
        let at = node.root().join("var/lib/edge-runtime/versions");
        std::fs::create_dir_all(&at).expect("a folder");
        let disk = Self { at };
        assert!(disk.run("-t", "tmpfs").arg("none").arg(&disk.at).status().expect("mount starts").success());
        disk
    }

    fn run(&self, flag: &str, value: &str) -> Command {
        let mut command = Command::new("mount");
        command.args([flag, value]);
        command
    }

    /// Remounts it like an administrator or the kernel; fails while a file is open for writing.
    fn remount(&self, how: &str) {
        until(Duration::from_secs(20), how, || {
            let done = self.run("-o", &format!("remount,{how}")).arg(&self.at).output().expect("mount starts");
            if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned()) }
        });
    }

    /// Bytes of the files in a folder, in pages.
    fn used(folder: &Path) -> u64 {
        let entries = std::fs::read_dir(folder).expect("a folder").flatten();
        let size = |path: PathBuf| if path.is_dir() { Self::used(&path) } else { size_of(&path) };
        entries.map(|entry| size(entry.path())).sum()
    }

    fn names(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.at).expect("a folder").flatten().map(|entry| entry.file_name());
        let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
        names.retain(|name| self.at.join(name).is_dir());
        names
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

fn size_of(file: &Path) -> u64 {
    file.metadata().map(|about| about.size().div_ceil(PAGE) * PAGE).unwrap_or_default()
}

#[test]
fn s18_a_disk_that_takes_nothing_in_the_trial_brings_the_old_version_back() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("sick");
    let (node, installed) = set_up(&cluster, 2);
    let disk = Disk::mount(&node);
    let (before, containers) = (installed.program(), node.container_pids());
    for name in ["readonly", "full"] {
        let bundle = Bundle::good(cluster.folder(), name);
        node.edge_ok(&["upgrade", &bundle.path(), "--trial", "10", "--no-wait"]);
        until(Duration::from_secs(20), "the new version runs", || {
            if installed.program() == before { Err("not yet".to_owned()) } else { Ok(()) }
        });
        let used = Disk::used(&disk.at);
        disk.remount(&if name == "readonly" { "ro".to_owned() } else { format!("size={used}") });
        // The version works, but its success cannot be stored.
        until(Duration::from_secs(90), "the old version runs", || match installed.program() {
            program if program == before => Ok(()),
            other => Err(other.display().to_string()),
        });
        assert!(node.log().contains("cannot be remembered"), "{name}: {}", node.log());
        node.wait_ready();
        disk.remount("rw,size=1g");
        installed.wait_outcome(&node, false, "did not take");
        installed.wait_program(&before);
        node.wait_ready();
        assert_eq!(node.container_pids(), containers, "{name}");
    }
    let bundle = Bundle::good(cluster.folder(), "afterwards");
    node.edge_ok(&["upgrade", &bundle.path(), "--trial", "10"]);
    assert_ne!(installed.program(), before);
    assert_eq!(node.container_pids(), containers);
    assert_eq!(disk.names().len(), 1, "{:?}", disk.names());
}

#[test]
fn s18_a_disk_that_gets_full_at_any_step_before_the_trial_changes_nothing() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("full");
    let (node, installed) = set_up(&cluster, 1);
    let disk = Disk::mount(&node);
    let (before, pid) = (installed.program(), installed.pid());
    let bundle = Bundle::good(cluster.folder(), "one");
    let files = ["manifest.json", "edge-runtime", "edge-admin", "edge-devices", "edge-api", "edge-plugins"];
    let needed: u64 = files.iter().map(|name| size_of(&bundle.folder().join(name))).sum();
    let said = |room: u64| {
        // An upgrade first removes what an earlier one left.
        for name in disk.names() {
            std::fs::remove_dir_all(disk.at.join(name)).expect("removed");
        }
        disk.remount(&format!("size={}", Disk::used(&disk.at) + room));
        node.edge(&["upgrade", &bundle.path(), "--trial", "10"])
    };
    let mut refused = 0;
    let more = (0..14).map(|power| needed + (PAGE << power));
    for room in [PAGE, needed / 3, needed - PAGE, needed].into_iter().chain(more) {
        match said(room) {
            Ok(_) => break,
            Err(why) => {
                assert!(
                    why.contains("No space left") || why.contains("self-test") || why.contains("selftest"),
                    "{why}"
                );
                assert_eq!((installed.program(), installed.pid()), (before.clone(), pid), "{room}: {why}");
                assert!(!disk.names().iter().any(|name| name == "arriving"), "{room}: {why}");
                refused += 1;
            }
        }
    }
    assert!(refused >= 4, "{refused}");
    assert_ne!(installed.program(), before, "with a few pages more it comes");
}
