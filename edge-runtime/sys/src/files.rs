//! Folders and files with the modes and the care they need. Knows nothing of what is in them.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Source of the tmpfs that a daemon mounts for its run folder, as `/proc/mounts` shows it.
pub const RUN_TMPFS: &str = "edge-runtime";

/// Makes a folder and its parents, readable by root alone.
///
/// # Errors
/// The path is named in the error.
pub fn private_dir(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| named(path, &error))
}

/// Makes a folder (its parents must exist) that everyone may enter.
///
/// # Errors
/// The path is named in the error.
pub fn open_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(named(path, &error)),
        _ => {}
    }
    // Set again: the umask of a service is often 077.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).map_err(|error| named(path, &error))
}

/// Deletes a folder and all in it; a missing one is fine. Refuses while anything is mounted in it: what
/// is mounted there (a hostPath, an overlay) belongs to somebody else and must not be emptied.
///
/// # Errors
/// A mount is left, or the path cannot be deleted; it is named.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    // The mount table holds real paths: behind a link no mount would be found.
    let real = match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        result => result.map_err(|error| named(path, &error))?,
    };
    if let Some(mount) = mounts_below(&real)?.pop() {
        return Err(io::Error::other(format!("{} is still mounted", mount.display())));
    }
    super::delete::delete_tree(&real).map_err(|error| named(path, &error))
}

/// Mount points at or below `path`, in the order they were mounted. `proc(5)`: field 5 of mountinfo,
/// with space, tab, newline and backslash as octal escapes.
///
/// # Errors
/// `/proc` is not mounted.
pub fn mounts_below(path: &Path) -> io::Result<Vec<PathBuf>> {
    let table = std::fs::read_to_string("/proc/thread-self/mountinfo")?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
    Ok(points.map(PathBuf::from).filter(|point| point.starts_with(path)).collect())
}

fn unescape(field: &str) -> String {
    let plain = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    if field.contains('\\') {
        plain.iter().fold(field.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
    } else {
        field.to_owned()
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
