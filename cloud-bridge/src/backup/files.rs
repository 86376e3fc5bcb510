//! The small files of a backup: keys and certificates of the bridge.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use apiserver::backup::{MAX_FILE, MAX_FILES, SmallFile};

/// Folder of keys and certificates, below the state folder.
pub(super) const PKI: &str = "pki";
/// Without these the nodes and users of the bridge would not know it.
const REQUIRED: [&str; 2] = ["pki/ca.crt", "pki/ca.key"];
/// Ending of files that are not complete.
const PARTIAL: &str = ".partial";

/// Reads the keys and certificates of a state folder as they are at one time: a rotation of the authority replaces several.
///
/// # Errors
/// One cannot be read, is missing or too long, or is being replaced.
pub(super) fn read(state: &Path) -> anyhow::Result<Vec<SmallFile>> {
    steady(|| read_once(state)).with_context(|| state.join(PKI).display().to_string())
}

/// What two successive reads give.
fn steady(mut read: impl FnMut() -> anyhow::Result<Vec<SmallFile>>) -> anyhow::Result<Vec<SmallFile>> {
    let files = read()?;
    ensure!(read()? == files, "keys and certificates are being replaced: try again");
    Ok(files)
}

fn read_once(state: &Path) -> anyhow::Result<Vec<SmallFile>> {
    let folder = state.join(PKI);
    let context = || folder.display().to_string();
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).with_context(context)? {
        let entry = entry.with_context(context)?;
        let name = entry.file_name().into_string().unwrap_or_default();
        if !entry.file_type().with_context(context)?.is_file() || name.ends_with(PARTIAL) {
            continue;
        }
        let path = entry.path();
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        files.push(SmallFile { name: format!("{PKI}/{name}"), bytes });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    check(&files)?;
    Ok(files)
}

/// Checks that these are the files of a backup, and that all lie in the folder of the keys.
///
/// # Errors
/// Names the first that does not.
pub(super) fn check(files: &[SmallFile]) -> anyhow::Result<()> {
    ensure!(files.len() <= MAX_FILES, "more than {MAX_FILES} keys and certificates");
    for file in files {
        if !is_name(&file.name) {
            bail!("{:?} is no name of a key or certificate", file.name);
        }
        ensure!(file.bytes.len() <= MAX_FILE, "{} has more than {MAX_FILE} bytes", file.name);
    }
    for name in REQUIRED {
        ensure!(files.iter().any(|file| file.name == name), "{name} is missing");
    }
    Ok(())
}

/// Whether this path names a file of the folder of the keys, and nothing outside of it.
fn is_name(path: &str) -> bool {
    let Some(name) = path.strip_prefix(PKI).and_then(|rest| rest.strip_prefix('/')) else { return false };
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
    plain && !name.is_empty() && !name.starts_with('.') && name.len() <= 64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> SmallFile {
        SmallFile { name: name.to_owned(), bytes: vec![1] }
    }

    #[test]
    fn files_outside_the_folder_of_keys_are_refused() {
        let with = |name: &str| check(&[file("pki/ca.crt"), file("pki/ca.key"), file(name)]);
        with("pki/sa.key").unwrap();
        for bad in ["pki/../api.db", "/etc/passwd", "pki/", "pki", "pki/.ssh", "pki/a/b", "api.db"] {
            assert!(with(bad).unwrap_err().to_string().contains("no name"), "{bad}");
        }
        let missing = check(&[file("pki/ca.crt")]).unwrap_err().to_string();
        assert!(missing.contains("pki/ca.key is missing"), "{missing}");
        let long = SmallFile { bytes: vec![0; MAX_FILE + 1], ..file("pki/x") };
        assert!(check(&[long]).unwrap_err().to_string().contains("pki/x has more than"));
    }

    #[test]
    fn keys_of_two_authorities_are_no_backup() {
        let mut reads =
            [1, 2, 3, 3].map(|byte| vec![SmallFile { bytes: vec![byte], ..file("pki/ca.key") }]).into_iter();
        let mut read = || steady(|| Ok(reads.next().unwrap()));
        assert!(read().unwrap_err().to_string().contains("try again"));
        assert_eq!(read().unwrap()[0].bytes, [3]);
    }

    #[test]
    fn unfinished_files_and_folders_are_left_out() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join(PKI);
        fs::create_dir_all(folder.join("folder")).unwrap();
        for name in ["ca.crt", "ca.key", "ca.partial"] {
            fs::write(folder.join(name), name).unwrap();
        }
        let names: Vec<String> = read(state.path()).unwrap().into_iter().map(|file| file.name).collect();
        assert_eq!(names, REQUIRED);
    }
}
