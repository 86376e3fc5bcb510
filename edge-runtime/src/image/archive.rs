//! Files inside an image archive: a folder, a tar, or a compressed or piped tar (copied to a nameless file first,
//! because the list of an archive's images may be its last entry). Knows names and bytes, not what they mean.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use tar::EntryType;

use crate::image::ImageError;
use crate::image::compress::plain;
use crate::image::error::one_line;
use crate::image::limits::Limits;

/// Archives hold a few files per layer.
const MOST_FILES: u64 = 16 * 1024;
/// Older `docker save` writes a repeated layer as a link to its first copy.
const MOST_LINKS: usize = 4;

/// Where an image comes from.
pub struct Source {
    /// Name in errors: the file's name or `standard input`.
    pub name: String,
    files: Files,
}

enum Files {
    Folder(PathBuf),
    Tar { file: File, index: BTreeMap<String, Place> },
}

enum Place {
    Bytes { offset: u64, size: u64 },
    Link(String),
}

impl Source {
    /// Opens a folder, a file, or with none the standard input. `spool` is a folder for what cannot be read in place.
    ///
    /// # Errors
    /// Not readable, not a tar, or more than the limits allow.
    pub fn open(path: Option<&Path>, spool: &Path, limits: &Limits) -> Result<Self, ImageError> {
        let Some(path) = path else {
            return Self::from_stream(BufReader::new(io::stdin().lock()), "standard input", spool, limits);
        };
        let name = path.display().to_string();
        if path.is_dir() {
            return Ok(Self { name, files: Files::Folder(path.to_owned()) });
        }
        let file = File::open(path).map_err(ImageError::io(path, "cannot open"))?;
        let mut head = [0; 512];
        let is_plain_tar = file.read_exact_at(&mut head, 0).is_ok() && &head[257..262] == b"ustar";
        if is_plain_tar {
            let index = index(&file, &name)?;
            return Ok(Self { name, files: Files::Tar { file, index } });
        }
        Self::from_stream(BufReader::new(file), &name, spool, limits)
    }

    fn from_stream(stream: impl BufRead, name: &str, spool: &Path, limits: &Limits) -> Result<Self, ImageError> {
        let failed = |what| ImageError::io(spool, what);
        let flags = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let file =
            open(spool, flags, Mode::from_bits_truncate(0o600)).map_err(|e| failed("cannot spool in")(e.into()))?;
        let file = File::from(file);
        let broken = |error: io::Error| ImageError::broken(name, "archive", error);
        let mut bytes = plain(stream).map_err(broken)?.take(limits.layer_bytes + 1);
        let copied = io::copy(&mut bytes, &mut &file).map_err(broken)?;
        ImageError::bound(copied, limits.layer_bytes, || format!("size of {name}"))?;
        let index = index(&file, name)?;
        Ok(Self { name: name.to_owned(), files: Files::Tar { file, index } })
    }

    pub fn has(&self, name: &str) -> bool {
        match &self.files {
            Files::Folder(dir) => dir.join(name).is_file(),
            Files::Tar { .. } => self.find(name).is_some(),
        }
    }

    /// The bytes of one file.
    ///
    /// # Errors
    /// It is not there (named).
    pub fn stream(&self, name: &str) -> Result<Box<dyn BufRead + '_>, ImageError> {
        let missing = |why: &str| ImageError::broken(&self.name, name, why);
        match &self.files {
            Files::Folder(dir) => {
                if name.split('/').any(|part| part == "..") || name.starts_with('/') {
                    return Err(missing("a file of an archive must stand inside it"));
                }
                let file = File::open(dir.join(name)).map_err(|error| missing(&error.to_string()))?;
                Ok(Box::new(BufReader::with_capacity(64 * 1024, file)))
            }
            Files::Tar { file, .. } => {
                let (offset, left) = self.find(name).ok_or_else(|| missing("is not in the archive"))?;
                Ok(Box::new(BufReader::with_capacity(64 * 1024, Section { file, offset, left })))
            }
        }
    }

    /// A small file as a whole.
    ///
    /// # Errors
    /// Same as [`Source::stream`], or the file is larger than `limit` bytes.
    pub fn read(&self, name: &str, limit: u64) -> Result<Vec<u8>, ImageError> {
        let mut bytes = Vec::new();
        let read = self.stream(name)?.take(limit + 1).read_to_end(&mut bytes);
        read.map_err(|error| ImageError::broken(&self.name, name, error))?;
        ImageError::bound(bytes.len() as u64, limit, || format!("size of {name} of {}", self.name))?;
        Ok(bytes)
    }

    /// Bytes of one file; 0 when it is not there.
    pub fn size(&self, name: &str) -> u64 {
        match &self.files {
            Files::Folder(dir) => std::fs::metadata(dir.join(name)).map_or(0, |meta| meta.len()),
            Files::Tar { .. } => self.find(name).map_or(0, |(_, size)| size),
        }
    }

    fn find(&self, name: &str) -> Option<(u64, u64)> {
        let Files::Tar { index, .. } = &self.files else { return None };
        let mut name = normal(name)?;
        for _ in 0..MOST_LINKS {
            match index.get(&name)? {
                Place::Bytes { offset, size } => return Some((*offset, *size)),
                Place::Link(target) => name.clone_from(target),
            }
        }
        None
    }
}

/// Where each file of a tar begins.
fn index(file: &File, name: &str) -> Result<BTreeMap<String, Place>, ImageError> {
    let broken =
        |error: io::Error| ImageError::broken(name, "archive", format!("cannot be read as a tar: {}", one_line(error)));
    let size = file.metadata().map_err(broken)?.len();
    let mut files = BTreeMap::new();
    let mut archive = tar::Archive::new(Section { file, offset: 0, left: u64::MAX });
    for entry in archive.entries_with_seek().map_err(broken)? {
        let entry = entry.map_err(broken)?;
        let Some(path) = normal(&String::from_utf8_lossy(&entry.path_bytes())) else { continue };
        let place = match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous => {
                let (offset, size_here) = (entry.raw_file_position(), entry.size());
                if offset.checked_add(size_here).is_none_or(|end| end > size) {
                    return Err(broken(io::Error::other(format!("it is cut inside {path}"))));
                }
                Place::Bytes { offset, size: size_here }
            }
            EntryType::Symlink | EntryType::Link => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                let target = String::from_utf8_lossy(&target).into_owned();
                let base = if entry.header().entry_type() == EntryType::Link { "" } else { parent(&path) };
                let Some(target) = normal(&format!("{base}/{target}")) else { continue };
                Place::Link(target)
            }
            _ => continue,
        };
        files.insert(path, place);
        ImageError::bound(files.len() as u64, MOST_FILES, || format!("number of files in {name}"))?;
    }
    Ok(files)
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// `./a//b/../c` as `a/c`; none when it climbs out of the archive.
fn normal(path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// A piece of a file, read without moving the file's own position.
struct Section<'a> {
    file: &'a File,
    offset: u64,
    left: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let n = self.file.read_at(&mut buffer[..most], self.offset)?;
        self.offset += n as u64;
        self.left -= n as u64;
        Ok(n)
    }
}

impl io::Seek for Section<'_> {
    /// Supports only the use of the tar reader: skipping forward.
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let target = match to {
            io::SeekFrom::Start(offset) => Some(offset),
            io::SeekFrom::Current(by) => self.offset.checked_add_signed(by),
            io::SeekFrom::End(_) => None,
        };
        self.offset = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.offset)
    }
}

#[cfg(test)]
mod tests;
