//! `/etc/passwd` and `/etc/group` of an image: opened without leaving its root, read up to a bound.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::UserError;
use crate::sys::beneath::open_in_root;

/// More than any honest image has.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Passwd {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) gid: u32,
    pub(super) members: Vec<String>,
}

pub(super) fn passwd(rootfs: &Path) -> Result<Vec<Passwd>, UserError> {
    let text = text(rootfs, "etc/passwd")?;
    Ok(text.lines().filter_map(parse_passwd).collect())
}

pub(super) fn group(rootfs: &Path) -> Result<Vec<Group>, UserError> {
    let text = text(rootfs, "etc/group")?;
    Ok(text.lines().filter_map(parse_group).collect())
}

fn parse_passwd(line: &str) -> Option<Passwd> {
    let mut fields = line.trim().split(':');
    let (name, _password) = (fields.next()?, fields.next()?);
    Some(Passwd { name: name.to_owned(), uid: id(fields.next()?)?, gid: id(fields.next()?)? })
}

fn parse_group(line: &str) -> Option<Group> {
    let mut fields = line.trim().split(':');
    let (name, _password) = (fields.next()?, fields.next()?);
    let gid = id(fields.next()?)?;
    let members = fields.next().unwrap_or_default();
    let members = members.split(',').filter(|m| !m.is_empty()).map(str::to_owned).collect();
    Some(Group { name: name.to_owned(), gid, members })
}

/// Parses an id of 31 bits, as everywhere in Kubernetes: the kernel's -1 is not an id.
fn id(field: &str) -> Option<u32> {
    field.parse().ok().filter(|id| i32::try_from(*id).is_ok())
}

/// Empty if the image has no such file.
fn text(rootfs: &Path, name: &str) -> Result<String, UserError> {
    let error = |source: io::Error| UserError::Read { path: rootfs.join(name), source };
    let root = File::open(rootfs).map_err(error)?;
    // Links of the image resolve within the image; not waiting for a writer, should it be a pipe.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = match open_in_root(&root, name, flags) {
        Ok(fd) => File::from(fd),
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(String::new()),
        Err(e) => return Err(error(e.into())),
    };
    if !file.metadata().map_err(error)?.is_file() {
        return Err(error(io::Error::other("not a regular file")));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(error)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
