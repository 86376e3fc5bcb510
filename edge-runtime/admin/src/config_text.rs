//! Changes the configuration file: one value at a time, and all its other text stays.

mod edit;

use std::ffi::OsString;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use sampan_launcher::config_lock;
use sampan_sys::files::unless_missing;

pub(crate) use edit::set;

/// Mode of a new file.
const MODE: u32 = 0o644;

/// Replaces a file, or the target of a link, at once. Its mode and owner stay.
pub(crate) fn write(file: &Path, text: &str) -> io::Result<()> {
    let file = config_lock::real(file)?;
    let before = unless_missing(fs::metadata(&file))?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    let mut name = OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    let partial = folder.join(name);
    let done = begin(&partial, text, before.as_ref()).and_then(|()| fs::rename(&partial, &file));
    if done.is_err() {
        let _ = fs::remove_file(&partial);
    }
    done?;
    File::open(folder)?.sync_all()
}

/// Writes a new file with the mode and owner of the one before, by descriptor: if the folder is another user's, the name may
/// lead elsewhere a moment later.
fn begin(partial: &Path, text: &str, before: Option<&Metadata>) -> io::Result<()> {
    // A left-over of a cut-off write may have any mode.
    unless_missing(fs::remove_file(partial))?;
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(partial)?;
    file.write_all(text.as_bytes())?;
    if let Some(before) = before {
        fchown(&file, Some(before.uid()), Some(before.gid()))?;
    }
    let mode = before.map_or(MODE, |before| before.permissions().mode() & 0o7777);
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_file_has_its_mode_and_is_no_link() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("config.yaml");
        fs::write(&file, "max-pods: 7\n").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let partial = root.path().join(".config.yaml");
        std::os::unix::fs::symlink(&file, &partial).unwrap();
        begin(&partial, "max-pods: 9\n", Some(&fs::metadata(&file).unwrap())).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "max-pods: 7\n");
        let meta = fs::symlink_metadata(&partial).unwrap();
        assert_eq!((meta.is_file(), meta.permissions().mode() & 0o7777), (true, 0o640));
    }
}
