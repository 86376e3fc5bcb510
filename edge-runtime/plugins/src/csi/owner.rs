//! fsGroup, for drivers that do not apply it. A process of its own walks through the volume: its folders may lie deeper
//! than there are descriptors, and its server may not answer.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use sampan_sys::ownership::{LONGEST, MOST, Progress, own as own_folder, too_much};
use sampan_sys::walk::Bounds;
use tokio::task::spawn_blocking;

use super::drivers::Driver;
use super::failure::Failure;
use super::folder::Folder;
use super::paths::Target;
use crate::shared::Shared;

/// Word of the arguments for fsGroupChangePolicy: OnRootMismatch.
const ON_ROOT_MISMATCH: &str = "on-root-mismatch";

/// Gives a volume of a pod to its group.
///
/// # Errors
/// A file cannot be changed, or there are too many.
pub(super) async fn give(
    shared: &Shared,
    driver: &Driver,
    target: &Target,
    group: u32,
    on_root_mismatch: bool,
) -> Result<(), Failure> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("--own").arg(&shared.settings.root).args([&target.pod, &target.volume]).arg(group.to_string());
    if on_root_mismatch {
        command.arg(ON_ROOT_MISMATCH);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // Processes of one driver at once are bounded as its calls are.
    let _permit = driver.calls.acquire().await;
    let ended = spawn_blocking(move || command.output()).await.map_err(|error| error.to_string())??;
    match ended.status.success() {
        true => Ok(()),
        false => {
            let why = String::from_utf8_lossy(&ended.stderr);
            Err(format!("applyFSGroup failed for vol {}: {}", target.volume, why.trim()).into())
        }
    }
}

/// What that process does: `ROOT POD VOLUME GROUP [on-root-mismatch]`.
///
/// # Errors
/// An entry cannot be changed, or there are too many; for people.
pub fn own(arguments: &[OsString]) -> Result<(), String> {
    let word = |number: usize| arguments.get(number).and_then(|word| word.to_str()).unwrap_or_default();
    let root = Path::new(word(0));
    let target = Target::new(word(1), word(2), false)?;
    let group: u32 = word(3).parse().map_err(|_| "own: ROOT POD VOLUME GROUP".to_owned())?;
    let folder = Folder::open(root, &target.parent()).map_err(|error| error.to_string())?;
    // A driver may have made a link: it is not followed.
    let top = folder.enter(target.name()).map_err(|error| error.to_string())?;
    let bounds = Bounds { entries: MOST, until: Instant::now() + LONGEST };
    let path = target.path(root);
    match own_folder(&top, &path, group, word(4) == ON_ROOT_MISMATCH, bounds).map_err(|error| error.to_string())? {
        Progress::Done => Ok(()),
        Progress::TooMuch(bound) => Err(too_much(&path, bound)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn volume_is_given_to_the_group_and_a_link_is_not_followed() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let (root, outside) = (tempfile::tempdir().expect("temp dir"), tempfile::tempdir().expect("temp dir"));
        let target = Target::new("uid", "pv", false).expect("names");
        let path = target.path(root.path());
        std::fs::create_dir_all(path.join("in")).expect("a folder");
        std::fs::write(path.join("in/file"), "").expect("a file");
        let root_text = root.path().to_str().expect("UTF-8");
        let words = |group: &str| [root_text, "uid", "pv", group].map(OsString::from);
        own(&words("4242")).expect("changed");
        let group = |path: &Path| std::fs::metadata(path).expect("it is there").gid();
        assert_eq!([group(&path), group(&path.join("in/file"))], [4_242, 4_242]);
        assert!(own(&words("x")).is_err() && own(&[]).is_err());
        std::fs::remove_dir_all(&path).expect("removed");
        symlink(outside.path(), &path).expect("a link");
        assert!(own(&words("4243")).is_err());
        assert_ne!(group(outside.path()), 4_243);
    }
}
