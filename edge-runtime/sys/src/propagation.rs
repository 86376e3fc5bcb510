//! Whether mounts below a folder are seen in other mount namespaces.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};

use super::files::{named, unescape};

/// Has mounts that a container makes below this folder appear here: only those of a shared mount do. Where it lies on another
/// one (systemd shares all mounts, other init systems none), the folder is bound to itself. As the kubelet (K8s
/// pkg/kubelet/kubelet.go, `setupDataDirs`).
///
/// # Errors
/// The folder is missing, or the kernel refuses.
pub fn make_shared(folder: &Path) -> io::Result<()> {
    // The table has real paths.
    let folder = folder.canonicalize().map_err(named(folder))?;
    let (point, is_shared) = mount_of(&fs::read_to_string("/proc/thread-self/mountinfo")?, &folder);
    if is_shared {
        return Ok(());
    }
    let none = None::<&str>;
    let change = |source: Option<&Path>, flags| {
        mount(source, folder.as_path(), none, flags, none).map_err(|errno| named(&folder)(errno.into()))
    };
    if point != folder {
        // With what is mounted below it.
        change(Some(folder.as_path()), MsFlags::MS_BIND | MsFlags::MS_REC)?;
    }
    change(None, MsFlags::MS_SHARED | MsFlags::MS_REC)
}

/// Where the mount is that holds a folder, and whether it is shared: by `/proc/PID/mountinfo` (proc(5)).
fn mount_of(table: &str, folder: &Path) -> (PathBuf, bool) {
    let mut found = (PathBuf::new(), false);
    for line in table.lines() {
        let mut fields = line.split(' ');
        let Some(point) = fields.nth(4).map(unescape).map(PathBuf::from) else { continue };
        // Of several mounts at one place the last one is seen.
        if folder.starts_with(&point) && point.as_os_str().len() >= found.0.as_os_str().len() {
            let is_shared = fields.take_while(|field| *field != "-").any(|field| field.starts_with("shared:"));
            found = (point, is_shared);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use crate::files::{mounts_below, unmount};

    #[test]
    fn mount_of_a_folder_is_the_nearest_one() {
        let table = "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
                     22 21 8:2 / /var rw master:7 - ext4 shared:x rw\n\
                     23 22 8:3 / /var/lib\\040x rw shared:3 master:2 - ext4 /dev/b rw\n\
                     24 21 8:4 / /srv rw shared:4 - ext4 /dev/c rw\n\
                     25 24 8:5 / /srv rw - ext4 /dev/d rw\n\
                     x\n";
        let found = |folder: &str| {
            let (point, is_shared) = mount_of(table, Path::new(folder));
            (point.to_str().unwrap().to_owned(), is_shared)
        };
        let at = |point: &str, is_shared| (point.to_owned(), is_shared);
        assert_eq!(found("/opt/kubelet"), at("/", true));
        assert_eq!(found("/var/lib/kubelet"), at("/var", false));
        assert_eq!(found("/variable"), at("/", true));
        assert_eq!(found("/var/lib x/kubelet"), at("/var/lib x", true));
        assert_eq!(found("/srv"), at("/srv", false), "the last one is seen");
        assert_eq!(mount_of("", Path::new("/a")), (PathBuf::new(), false));
    }

    #[test]
    fn folder_of_a_private_mount_is_bound_to_itself_once() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        // A mount namespace of its own.
        let inside = || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            mount(None::<&str>, "/", None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC, None::<&str>).unwrap();
            let dir = tempfile::tempdir().unwrap();
            let folder = dir.path().canonicalize().unwrap();
            for _ in 0..2 {
                make_shared(&folder).unwrap();
            }
            assert_eq!(mounts_below(&folder).unwrap(), std::slice::from_ref(&folder));
            let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
            assert_eq!(mount_of(&table, &folder), (folder.clone(), true));
            assert!(unmount(&folder).unwrap());
            assert!(make_shared(&folder.join("missing")).is_err());
        };
        std::thread::spawn(inside).join().unwrap();
    }
}
