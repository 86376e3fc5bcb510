//! Writes an unpacked layer as a tar (OCI image-spec, `layer.md`). Entries are sorted: the same layer gives the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, DirEntry, File, FileType, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use edge_runtime::image::unpack::xattr;
use nix::sys::stat::{major, minor};
use sampan_sys::files::named;
use tar::{Builder, EntryType, Header};

/// Writes the layer in the folder `root`; its folders of the paths `undescribed` get no entries of their own.
///
/// # Errors
/// A file of the layer cannot be read: it is named. Or `out` cannot be written.
pub(super) fn write(root: &Path, undescribed: &[String], out: impl Write) -> io::Result<()> {
    let undescribed = undescribed.iter().map(Path::new).collect();
    let mut layer = Layer { root, undescribed, tar: Builder::new(out), first: BTreeMap::new() };
    layer.folder(Path::new(""))?;
    layer.tar.into_inner()?.flush()
}

struct Layer<'a, W: Write> {
    root: &'a Path,
    undescribed: BTreeSet<&'a Path>,
    tar: Builder<W>,
    /// First path of each file with several, by its inode.
    first: BTreeMap<u64, PathBuf>,
}

impl<W: Write> Layer<'_, W> {
    fn folder(&mut self, path: &Path) -> io::Result<()> {
        let real = self.root.join(path);
        let folder = File::open(&real).map_err(named(&real))?;
        if !self.undescribed.contains(path) {
            let name = if path.as_os_str().is_empty() { Path::new("./") } else { path };
            let mut header = header(&folder.metadata()?, EntryType::Directory);
            self.attributes(&folder)?;
            self.tar.append_data(&mut header, name, io::empty())?;
        }
        if xattr::is_opaque(folder.as_fd()) {
            self.marker(&path.join(".wh..wh..opq"))?;
        }
        let entries = fs::read_dir(&real).and_then(|all| all.collect::<io::Result<Vec<_>>>());
        let mut entries = entries.map_err(named(&real))?;
        entries.sort_by_key(DirEntry::file_name);
        for entry in entries {
            let (path, meta) = (path.join(entry.file_name()), entry.metadata().map_err(named(&real))?);
            if meta.is_dir() {
                self.folder(&path)?;
            } else {
                self.entry(&path, &meta)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, meta: &Metadata) -> io::Result<()> {
        let (kind, real) = (meta.file_type(), self.root.join(path));
        // So overlayfs marks a file of the layers below that is gone.
        if kind.is_char_device() && meta.rdev() == 0 {
            let mut name = OsString::from(".wh.");
            name.push(path.file_name().unwrap_or_default());
            return self.marker(&path.with_file_name(name));
        }
        if meta.nlink() > 1 {
            if let Some(first) = self.first.get(&meta.ino()) {
                return self.tar.append_link(&mut header(meta, EntryType::Link), path, first);
            }
            self.first.insert(meta.ino(), path.to_owned());
        }
        let mut header = header(meta, entry_type(kind).map_err(named(&real))?);
        if kind.is_symlink() {
            let target = fs::read_link(&real).map_err(named(&real))?;
            let target = target.as_os_str().as_bytes();
            // `append_link` would write `a//b` as `a/b`.
            if header.set_link_name_literal(target).is_err() {
                self.tar.append_pax_extensions([("linkpath", target)])?;
            }
            return self.tar.append_data(&mut header, path, io::empty());
        }
        if kind.is_file() {
            let file = File::open(&real).map_err(named(&real))?;
            self.attributes(&file)?;
            header.set_size(meta.len());
            return self.tar.append_data(&mut header, path, file.take(meta.len()));
        }
        header.set_device_major(u32::try_from(major(meta.rdev())).map_err(io::Error::other)?)?;
        header.set_device_minor(u32::try_from(minor(meta.rdev())).map_err(io::Error::other)?)?;
        self.tar.append_data(&mut header, path, io::empty())
    }

    /// An empty file whose name says something about the layers below.
    fn marker(&mut self, path: &Path) -> io::Result<()> {
        self.tar.append_data(&mut plain(EntryType::Regular), path, io::empty())
    }

    /// Extended attributes of the next entry.
    fn attributes(&mut self, file: &File) -> io::Result<()> {
        let all = xattr::list(file.as_fd())?;
        let all: Vec<(String, Vec<u8>)> =
            all.into_iter().map(|(name, value)| (format!("SCHILY.xattr.{}", name.to_string_lossy()), value)).collect();
        self.tar.append_pax_extensions(all.iter().map(|(name, value)| (name.as_str(), value.as_slice())))
    }
}

fn header(meta: &Metadata, kind: EntryType) -> Header {
    let mut header = plain(kind);
    header.set_mode(meta.mode() & 0o7777);
    header.set_uid(meta.uid().into());
    header.set_gid(meta.gid().into());
    header.set_mtime(u64::try_from(meta.mtime()).unwrap_or_default());
    header
}

/// Every field is set: readers refuse empty ones.
fn plain(kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header
}

fn entry_type(kind: FileType) -> io::Result<EntryType> {
    match kind {
        kind if kind.is_file() => Ok(EntryType::Regular),
        kind if kind.is_symlink() => Ok(EntryType::Symlink),
        kind if kind.is_fifo() => Ok(EntryType::Fifo),
        kind if kind.is_char_device() => Ok(EntryType::Char),
        kind if kind.is_block_device() => Ok(EntryType::Block),
        _ => Err(io::Error::other("an image cannot have a socket")),
    }
}

#[cfg(test)]
mod tests {
    use edge_runtime::image::digest::sha256;
    use edge_runtime::image::layers::Layers;
    use edge_runtime::image::limits::Limits;
    use edge_runtime::paths::Paths;

    use super::*;

    fn added(layers: &Layers, tar: &[u8]) -> Vec<u8> {
        let id = sha256(tar);
        layers.add(&id, tar, &Limits::default(), "x").unwrap();
        let mut written = Vec::new();
        write(&layers.folder(&id).unwrap(), &layers.undescribed(&id), &mut written).unwrap();
        written
    }

    fn entries(tar: &[u8]) -> Vec<String> {
        let mut archive = tar::Archive::new(tar);
        let line = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
            let entry = entry.unwrap();
            let link = entry.link_name().unwrap().map(|link| format!(" -> {}", link.display())).unwrap_or_default();
            format!("{}{link} {:o}", entry.path().unwrap().display(), entry.header().mode().unwrap())
        };
        archive.entries().unwrap().map(line).collect()
    }

    #[test]
    fn target_of_a_link_stays_as_it_is() {
        let temp = tempfile::tempdir().unwrap();
        let long = format!("..//{}/./", "x".repeat(150));
        let targets = ["..//app/b", "./app/", &format!("/{}b", "/".repeat(100)), &long].map(str::to_owned);
        for (at, target) in targets.iter().enumerate() {
            std::os::unix::fs::symlink(target, temp.path().join(at.to_string())).unwrap();
        }
        let mut written = Vec::new();
        write(temp.path(), &[], &mut written).unwrap();
        let found = entries(&written);
        let wanted: Vec<String> =
            targets.iter().enumerate().map(|(at, target)| format!("{at} -> {target} 777")).collect();
        assert_eq!(found[1..], wanted);
    }

    #[test]
    fn written_layer_is_the_unpacked_one() {
        let temp = tempfile::tempdir().unwrap();
        let layers = Layers::new(&Paths::new(temp.path()));
        layers.prepare().unwrap();
        let mut tar = Builder::new(Vec::new());
        let long = format!("app/{}", "x".repeat(150));
        for (path, kind, link, text, mode) in [
            ("app/", EntryType::Directory, "", "", 0o750),
            ("app/b", EntryType::Regular, "", "text", 0o4755),
            ("app/a", EntryType::Link, "app/b", "", 0o4755),
            ("app/link", EntryType::Symlink, "../app/b", "", 0o777),
            (long.as_str(), EntryType::Regular, "", "", 0o600),
            // Its folder has no entry.
            ("other/file", EntryType::Regular, "", "", 0o644),
        ] {
            let mut header = plain(kind);
            header.set_mode(mode);
            header.set_mtime(7);
            header.set_size(text.len() as u64);
            match link {
                "" => tar.append_data(&mut header, path, text.as_bytes()).unwrap(),
                link => tar.append_link(&mut header, path, link).unwrap(),
            }
        }
        let is_root = nix::unistd::geteuid().is_root();
        if is_root {
            for marker in ["app/.wh.gone", "app/.wh..wh..opq"] {
                tar.append_data(&mut plain(EntryType::Regular), marker, io::empty()).unwrap();
            }
        }
        let written = added(&layers, &tar.into_inner().unwrap());
        let found = entries(&written);
        let mut wanted =
            vec!["app 750", "app/.wh..wh..opq 644", "app/a 4755", "app/b -> app/a 4755", "app/.wh.gone 644"];
        wanted.retain(|line| is_root || !line.contains(".wh."));
        assert_eq!(found[1..=wanted.len()], wanted, "{found:?}");
        assert!(found.contains(&"app/link -> ../app/b 777".to_owned()), "{found:?}");
        assert!(found.contains(&format!("{long} 600")) && found.last().unwrap() == "other/file 644", "{found:?}");
        assert!(!found.contains(&"other 755".to_owned()), "{found:?}");
        // Unpacked and written again it has the same bytes: nothing is lost on the way.
        assert_eq!(added(&layers, &written), written);
    }
}
