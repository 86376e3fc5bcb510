//! Puts a backup into a state folder. It is prepared beside the present state first; while it takes that state's place,
//! [`ensure_whole`](crate::state_folder::ensure_whole) keeps the bridge from starting.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, lchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use apiserver::backup::{self, MAX_FILE, SmallFile};
use jiff::Timestamp;

use super::files::PKI;
use crate::pki::keep::write_private;
use crate::state_folder::RESTORING;

/// What a restore replaces. `api.db.gone` stays: it lists what must not come back, by uid.
const STATE: [&str; 6] = ["api.db-wal", "api.db-shm", "api.db", "api.db.copy", PKI, "kubeconfig"];
/// What it puts there, in this order: without the last one the bridge has no API.
const RESTORED: [&str; 2] = [PKI, "api.db.copy"];
const KEY: &str = "pki/ca.key";
const ROTATION: &str = "pki/rotation.json";

/// What the state folder has before a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Present {
    Nothing,
    /// The state of the bridge that the backup is of, with its list of deleted nodes and used tokens.
    SameBridge,
    OtherBridge,
}

impl Present {
    pub(super) fn look(state: &Path, backup: &[SmallFile]) -> Self {
        let there = STATE.iter().any(|name| state.join(name).exists());
        let own = read_key(state);
        let of_backup = backup.iter().find(|file| file.name == KEY).map(|file| &file.bytes);
        Self::of(there, own.is_some() && own.as_ref() == of_backup, state.join("api.db").exists())
    }

    /// A bridge that lost its state file may have lost the list of deletions, too.
    fn of(there: bool, same_key: bool, has_objects: bool) -> Self {
        match (there, same_key) {
            (false, _) => Self::Nothing,
            (true, true) if has_objects => Self::SameBridge,
            (true, true) => Self::Nothing,
            (true, false) => Self::OtherBridge,
        }
    }
}

/// Makes the state folder if it is missing.
pub(super) fn ensure_folder(state: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(state);
    made.with_context(|| state.display().to_string())
}

/// Refuses a running bridge, and keeps it from starting until this is dropped.
pub(super) fn lock(state: &Path) -> anyhow::Result<File> {
    let lock = backup::lock(&state.join("api.db"))?;
    give(&state.join("api.db-lock"), &owner(state)?)?;
    Ok(lock)
}

/// Replaces the state by that of the backup, whose objects the bridge reads when it starts with `--restore`. Returns where
/// the previous state is.
///
/// # Errors
/// A file cannot be written: nothing was changed. A file cannot be moved: the bridge does not start until a restore has
/// succeeded.
pub(super) fn run(
    state: &Path,
    from: &Path,
    files: &[SmallFile],
    made: Timestamp,
    present: Present,
) -> anyhow::Result<Option<PathBuf>> {
    let now = Timestamp::now();
    let new = state.join(RESTORING);
    let was_half = new.exists();
    let files = with_rotation(state, files)?;
    let prepared = prepare(state, &new, from, &files, made, now, present);
    // The present state is as it was, and the bridge may start.
    if prepared.is_err() && !was_half {
        let _ = fs::remove_dir_all(&new);
    }
    prepared?;
    let replaced = set_aside(state, now).with_context(|| state.display().to_string())?;
    for name in RESTORED {
        fs::rename(new.join(name), state.join(name)).with_context(|| state.join(name).display().to_string())?;
    }
    sync(state)?;
    fs::remove_dir(&new).with_context(|| new.display().to_string())?;
    sync(state)?;
    Ok(replaced)
}

/// The files to restore. A rotation of the same authority that began after the backup stays, because nodes have certificates
/// of it. After a restore that was cut off, it may be among the files that were prepared.
fn with_rotation(state: &Path, files: &[SmallFile]) -> anyhow::Result<Vec<SmallFile>> {
    let mut files = files.to_vec();
    let key = files.iter().find(|file| file.name == KEY).map(|file| file.bytes.clone());
    let half = state.join(RESTORING);
    for folder in [state, half.as_path()] {
        let path = folder.join(ROTATION);
        let is_there = fs::symlink_metadata(&path).is_ok_and(|file| file.is_file());
        if is_there && read_key(folder) == key {
            let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
            files.retain(|file| file.name != ROTATION);
            files.push(SmallFile { name: ROTATION.to_owned(), bytes });
            break;
        }
    }
    Ok(files)
}

/// Writes all files of the backup into a folder of their own, durably and as files of the state folder's owner.
fn prepare(
    state: &Path,
    new: &Path,
    from: &Path,
    files: &[SmallFile],
    made: Timestamp,
    now: Timestamp,
    present: Present,
) -> anyhow::Result<()> {
    match fs::remove_dir_all(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => bail!("{}: {error}", new.display()),
        _ => {}
    }
    let pki = new.join(PKI);
    DirBuilder::new().recursive(true).mode(0o700).create(&pki).with_context(|| pki.display().to_string())?;
    let copy = new.join("api.db.copy");
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    backup::copy_from(from, &copy, &state.join("api.db"), seconds, present == Present::SameBridge)?;
    // The bridge names this time as that of the copy.
    File::options().write(true).open(&copy).and_then(|file| file.set_modified(made.into())).context("api.db.copy")?;
    let owner = owner(state)?;
    for file in files {
        let path = new.join(&file.name);
        write_private(&path, &file.bytes)?;
        give(&path, &owner)?;
    }
    for path in [copy.as_path(), pki.as_path(), new] {
        give(path, &owner)?;
    }
    sync(&pki)?;
    sync(new)?;
    sync(state)
}

/// Moves the present state into a folder beside it. `None` without one.
fn set_aside(state: &Path, now: Timestamp) -> anyhow::Result<Option<PathBuf>> {
    let there: Vec<&str> = STATE.into_iter().filter(|name| state.join(name).exists()).collect();
    if there.is_empty() {
        return Ok(None);
    }
    let aside = state.join(format!("replaced-{}", now.as_millisecond()));
    DirBuilder::new().mode(0o700).create(&aside)?;
    give(&aside, &owner(state)?)?;
    for name in there {
        fs::rename(state.join(name), aside.join(name))?;
    }
    sync(&aside)?;
    sync(state)?;
    Ok(Some(aside))
}

/// The key of the authority in a folder of the service's user.
fn read_key(folder: &Path) -> Option<Vec<u8>> {
    sampan_file::read(&folder.join(KEY), MAX_FILE as u64).ok()
}

fn owner(state: &Path) -> anyhow::Result<Metadata> {
    fs::metadata(state).with_context(|| state.display().to_string())
}

/// Root may run this in a folder of the service's user, who must be able to read it. Does not follow a link, which that user
/// may have made to a file of root.
fn give(path: &Path, owner: &Metadata) -> anyhow::Result<()> {
    lchown(path, Some(owner.uid()), Some(owner.gid())).with_context(|| path.display().to_string())
}

fn sync(folder: &Path) -> anyhow::Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).with_context(|| folder.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletions_are_known_only_beside_the_objects_of_the_same_bridge() {
        assert_eq!(Present::of(false, false, false), Present::Nothing);
        assert_eq!(Present::of(true, true, true), Present::SameBridge);
        assert_eq!(Present::of(true, true, false), Present::Nothing, "only its keys are left");
        assert_eq!(Present::of(true, false, true), Present::OtherBridge);
    }

    #[test]
    fn present_bridge_is_told_by_its_key() {
        let state = tempfile::tempdir().unwrap();
        let key = |bytes: &[u8]| SmallFile { name: KEY.to_owned(), bytes: bytes.to_vec() };
        assert_eq!(Present::look(state.path(), &[key(b"1")]), Present::Nothing);
        fs::create_dir(state.path().join(PKI)).unwrap();
        fs::write(state.path().join(KEY), "1").unwrap();
        fs::write(state.path().join("api.db"), "objects").unwrap();
        assert_eq!(Present::look(state.path(), &[key(b"1")]), Present::SameBridge);
        assert_eq!(Present::look(state.path(), &[key(b"2")]), Present::OtherBridge);
    }

    fn small_files() -> [SmallFile; 2] {
        ["pki/ca.crt", KEY].map(|name| SmallFile { name: name.to_owned(), bytes: name.into() })
    }

    #[test]
    fn failed_preparation_leaves_the_state_as_it_was() {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join("api.db"), "objects").unwrap();
        let fails = || {
            let none = state.path().join("none.backup");
            run(state.path(), &none, &small_files(), Timestamp::UNIX_EPOCH, Present::OtherBridge).is_err()
        };
        assert!(fails());
        assert_eq!(fs::read(state.path().join("api.db")).unwrap(), b"objects");
        let half = state.path().join(RESTORING);
        assert!(!half.exists(), "the bridge may start");
        // An earlier restore was cut off: a bridge could start with nothing.
        fs::create_dir(&half).unwrap();
        assert!(fails() && half.exists());
    }

    #[test]
    fn rotation_that_began_after_the_backup_stays() {
        let rotation = SmallFile { name: ROTATION.to_owned(), bytes: b"later".to_vec() };
        // In the state folder, or where a restore that was cut off has prepared it.
        for place in ["", RESTORING] {
            let state = tempfile::tempdir().unwrap();
            let files = || with_rotation(state.path(), &small_files()).unwrap();
            assert_eq!(files(), small_files());
            let folder = state.path().join(place);
            fs::create_dir_all(folder.join(PKI)).unwrap();
            fs::write(folder.join(ROTATION), "later").unwrap();
            fs::write(folder.join(KEY), "other").unwrap();
            assert_eq!(files(), small_files(), "of another authority");
            fs::write(folder.join(KEY), KEY).unwrap();
            assert_eq!(files().last(), Some(&rotation));
        }
    }

    #[test]
    fn links_of_the_service_are_not_followed() {
        let state = tempfile::tempdir().unwrap();
        let link = state.path().join("api.db-lock");
        std::os::unix::fs::symlink(state.path().join("none"), &link).unwrap();
        give(&link, &owner(state.path()).unwrap()).unwrap();
    }

    #[test]
    fn previous_state_is_kept_beside_the_list_of_deletions() {
        let state = tempfile::tempdir().unwrap();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        assert_eq!(set_aside(state.path(), now).unwrap(), None);
        for name in ["api.db", "api.db.gone", "api.db.damaged"] {
            fs::write(state.path().join(name), name).unwrap();
        }
        let aside = set_aside(state.path(), now).unwrap().unwrap();
        assert_eq!(fs::read_to_string(aside.join("api.db")).unwrap(), "api.db");
        assert!(state.path().join("api.db.gone").exists() && !aside.join("api.db.gone").exists());
    }
}
