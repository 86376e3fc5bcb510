//! Reads the folders with specifications. A file that cannot be read counts only for the devices that are not found
//! elsewhere: it must not stop those of other vendors.

use std::fs::{File, read_dir};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use super::spec::Spec;

/// Most files of a folder that are read.
const MAX_FILES: usize = 64;
/// Longest file, bytes.
const MAX_FILE: u64 = 1 << 20;

/// All specifications.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// By folder, in the order of the folders.
    pub(super) specs: Vec<(usize, PathBuf, Spec)>,
    /// Why files cannot be used.
    pub(super) unusable: Vec<String>,
}

/// A folder that does not exist has no files.
pub(super) fn read(folders: &[PathBuf]) -> Files {
    let mut files = Files::default();
    for (at, folder) in folders.iter().enumerate() {
        match list(folder) {
            Ok(paths) => {
                for path in paths {
                    files.add(at, path);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => files.unusable.push(format!("{}: {error}", folder.display())),
        }
    }
    files
}

impl Files {
    fn add(&mut self, at: usize, path: PathBuf) {
        let read = match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => text(&path).and_then(|text| Spec::read(&text)),
            Some("yaml") => Err("YAML is not supported; convert the file to JSON".to_owned()),
            _ => return,
        };
        match read {
            Ok(spec) => self.specs.push((at, path, spec)),
            Err(why) => self.unusable.push(format!("{}: {why}", path.display())),
        }
    }
}

/// Files of a folder, sorted.
fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in read_dir(folder)? {
        let entry = entry?;
        // Half-written files have such names.
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
        if paths.len() > MAX_FILES {
            return Err(io::Error::other(format!("the folder has more than {MAX_FILES} files")));
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

fn text(path: &Path) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let mut read = || {
        // A FIFO must not be waited for.
        let file = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        file.take(MAX_FILE + 1).read_to_end(&mut text)
    };
    match read() {
        Ok(length) if u64::try_from(length).is_ok_and(|length| length <= MAX_FILE) => Ok(text),
        Ok(_) => Err(format!("it has more than {MAX_FILE} bytes")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str =
        r#"{"cdiVersion": "0.6.0", "kind": "v.com/c", "devices": [{"name": "0", "containerEdits": {}}]}"#;

    #[test]
    fn one_bad_file_does_not_hide_others() {
        let folder = tempfile::tempdir().expect("temp dir");
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
        put("b.json", SPEC);
        put("a.json", "{");
        put("c.yaml", "kind: v.com/c");
        put(".d.json", "{");
        put("readme", "");
        put("long.json", &" ".repeat(usize::try_from(MAX_FILE).expect("fits") + 1));
        std::fs::create_dir(folder.path().join("folder.json")).expect("a folder");
        let files = read(&[folder.path().join("missing"), folder.path().to_owned()]);
        let (at, path, _) = &files.specs[0];
        assert_eq!((files.specs.len(), *at, path), (1, 1, &folder.path().join("b.json")));
        for (name, why) in [
            ("a.json", "EOF while parsing"),
            ("c.yaml", "YAML is not supported"),
            ("long.json", "more than 1048576 bytes"),
            ("folder.json", "it is no file"),
        ] {
            assert!(files.unusable.iter().any(|line| line.contains(name) && line.contains(why)), "{name}");
        }
        assert_eq!(files.unusable.len(), 4);
    }

    #[test]
    fn folder_with_too_many_files_is_named() {
        let folder = tempfile::tempdir().expect("temp dir");
        for number in 0..=MAX_FILES {
            std::fs::write(folder.path().join(format!("{number}.json")), SPEC).expect("written");
        }
        let files = read(&[folder.path().to_owned()]);
        assert!(files.specs.is_empty());
        assert!(files.unusable[0].contains("more than 64 files"), "{:?}", files.unusable);
    }
}
