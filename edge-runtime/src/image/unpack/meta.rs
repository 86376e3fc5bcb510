//! Metadata of an archive entry: owner, mode, time, attributes, device number.

use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;

use nix::sys::stat::{Mode, SFlag, makedev};
use nix::sys::time::TimeSpec;
use tar::{Entry, EntryType};

use super::records::Records;
use super::xattr;

/// Owner, mode, time and attributes of one entry.
pub(super) struct Meta {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: Mode,
    pub(super) mtime: TimeSpec,
    xattrs: Vec<(CString, Vec<u8>)>,
}

impl Meta {
    pub(super) fn of(entry: &Entry<'_, impl Read>, records: &Records) -> io::Result<Self> {
        let mut xattrs = Vec::new();
        for (key, value) in records.pax() {
            if let Some(name) = key.strip_prefix(b"SCHILY.xattr.").and_then(xattr::allowed) {
                xattrs.push((name, value.to_vec()));
            }
        }
        let header = entry.header();
        let id = |id: io::Result<u64>| u32::try_from(id?).map_err(io::Error::other);
        Ok(Self {
            uid: records.id("uid")?.map_or_else(|| id(header.uid()), Ok)?,
            gid: records.id("gid")?.map_or_else(|| id(header.gid()), Ok)?,
            mode: Mode::from_bits_truncate(header.mode()? & 0o7777),
            // A time that this machine cannot hold becomes the epoch.
            mtime: TimeSpec::new(header.mtime()?.try_into().unwrap_or_default(), 0),
            xattrs,
        })
    }

    /// What the file system cannot hold is left out, as other runtimes do.
    pub(super) fn set_xattrs(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        for (name, value) in &self.xattrs {
            match xattr::set(fd, name, value) {
                Err(error) if matches!(error.raw_os_error(), Some(nix::libc::EOPNOTSUPP | nix::libc::EPERM)) => {
                    log::debug!("attribute {} left out: {error}", name.to_string_lossy());
                }
                other => other?,
            }
        }
        Ok(())
    }
}

/// Kind and number of a device node or pipe.
pub(super) fn device(entry: &Entry<'_, impl Read>) -> io::Result<(SFlag, nix::libc::dev_t)> {
    let header = entry.header();
    let number = |n: Option<u32>| n.map(u64::from).ok_or_else(|| io::Error::other("a device without a number"));
    let kind = match header.entry_type() {
        EntryType::Fifo => return Ok((SFlag::S_IFIFO, 0)),
        EntryType::Char => SFlag::S_IFCHR,
        _ => SFlag::S_IFBLK,
    };
    let (major, minor) = (number(header.device_major()?)?, number(header.device_minor()?)?);
    Ok((kind, makedev(major, minor)))
}
