//! A file that holds a version of the programs: a tar archive of `manifest.json` and the programs, at its top, not compressed (as
//! programs, which boards pull as images, are compressed there). It comes from anywhere: only these names are taken from it.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ring::digest::{Context, SHA256};
use sampan_launcher::versions::Versions;
use tar::Archive;

use super::Arrived;
use super::check::hex;
use super::error::UpgradeError;

/// Files of a version. The first two are required.
pub(crate) const FILES: [&str; 6] =
    ["manifest.json", "edge-runtime", "edge-admin", "edge-devices", "edge-api", "edge-plugins"];
/// Maximum size of one program, in bytes. The largest has six megabytes.
const LARGEST: u64 = 64 << 20;

/// Unpacks it. The digest is that of the whole file.
///
/// # Errors
/// The file cannot be read, is malformed or no regular file, or the disk is full.
pub(crate) fn unpack(file: &Path, versions: &Versions) -> Result<Arrived, UpgradeError> {
    let opened = sampan_file::open(file).map_err(UpgradeError::io(file))?;
    let mut arrived = Arrived::room(versions, "")?;
    let mut source = Hashed { from: opened, hash: Context::new(&SHA256) };
    take(&mut source, &arrived.folder).map_err(|source| UpgradeError::Io { path: file.into(), source })?;
    io::copy(&mut source, &mut io::sink()).map_err(UpgradeError::io(file))?;
    arrived.digest = format!("sha256:{}", hex(source.hash.finish().as_ref()));
    Ok(arrived)
}

fn take(source: impl Read, folder: &Path) -> io::Result<()> {
    // Raw: entries with long names, as of GNU and pax, would be read into memory completely, and no valid bundle has
    // one.
    for entry in Archive::new(source).entries()?.raw(true) {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let path = path.strip_prefix("./").unwrap_or(&path);
        let name = path.to_str().filter(|name| FILES.contains(name)).map(str::to_owned);
        if let Some(name) = name.filter(|_| entry.header().entry_type().is_file()) {
            put(&mut entry, folder, &name)?;
        }
    }
    Ok(())
}

/// One file of a version, as root's program.
pub(super) fn put(from: &mut dyn Read, folder: &Path, name: &str) -> io::Result<()> {
    let path = folder.join(name);
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{name}: {error}"));
    let mut to = fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(path).map_err(named)?;
    let length = io::copy(&mut from.take(LARGEST + 1), &mut to).map_err(named)?;
    if length > LARGEST { Err(named(io::Error::other("is larger than 64 MiB"))) } else { Ok(()) }
}

/// Counts what is read into a digest.
struct Hashed<R> {
    from: R,
    hash: Context,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(bytes)?;
        self.hash.update(bytes.get(..length).unwrap_or_default());
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, bytes) in entries {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o4777);
            // A hostile name is refused by the builder's own way to set it.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            builder.append(&header, *bytes).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn only_known_files_are_unpacked_once() {
        let temp = tempfile::tempdir().unwrap();
        let versions = Versions::new(temp.path(), temp.path());
        let file = temp.path().join("bundle.tar");
        let unpacked = |entries: &[(&str, &[u8])]| {
            fs::write(&file, archive(entries)).unwrap();
            unpack(&file, &versions)
        };
        let good = [
            ("manifest.json", &b"{}"[..]),
            ("./edge-runtime", b"elf"),
            ("../../etc/passwd", b"x"),
            ("/edge-admin", b"y"),
            ("lib/edge-admin", b"y"),
            ("other", b"z"),
        ];
        let arrived = unpacked(&good).unwrap();
        let mut names: Vec<_> = fs::read_dir(&arrived.folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["edge-runtime", "manifest.json"]);
        let folder = arrived.folder.clone();
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(folder.join("edge-runtime")).unwrap().permissions().mode() & 0o7777, 0o755);
        let whole = ring::digest::digest(&SHA256, &fs::read(&file).unwrap());
        assert_eq!(arrived.digest, format!("sha256:{}", hex(whole.as_ref())));
        drop(arrived);
        assert!(!folder.exists());
        assert!(unpacked(&[("edge-runtime", b"a"), ("edge-runtime", b"b")]).is_err());
        fs::write(&file, vec![7; 5000]).unwrap();
        assert!(unpack(&file, &versions).is_err());
        assert!(unpack(Path::new("/nonexistent"), &versions).is_err());
        // No name but that of the entry itself.
        let mut long = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::GNULongName);
        header.set_size(12);
        header.set_cksum();
        long.append(&header, &b"edge-runtime"[..]).unwrap();
        let mut file_of_it = tar::Header::new_ustar();
        file_of_it.set_path("other").unwrap();
        file_of_it.set_size(1);
        file_of_it.set_cksum();
        long.append(&file_of_it, &b"x"[..]).unwrap();
        fs::write(&file, long.into_inner().unwrap()).unwrap();
        assert_eq!(fs::read_dir(&unpack(&file, &versions).unwrap().folder).unwrap().count(), 0);
        let cut = archive(&good);
        fs::write(&file, &cut[..700]).unwrap();
        assert!(unpack(&file, &versions).is_err());
    }
}
