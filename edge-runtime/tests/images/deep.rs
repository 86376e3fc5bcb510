//! Layers and folders that are deeper than descriptors and paths reach.

use std::os::fd::OwnedFd;
use std::path::Path;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};

/// One file below `depth` folders.
pub(crate) fn by_name(depth: usize) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_data(&mut header(tar::EntryType::Regular), "a/".repeat(depth) + "f", &b""[..]).unwrap();
    builder.into_inner().unwrap()
}

/// `steps` times `depth` folders below each other: each step begins behind a link to the end of the last.
pub(crate) fn by_links(steps: usize, depth: usize) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut begin = String::new();
    for step in 0..steps {
        let end = begin + &"a/".repeat(depth);
        builder.append_data(&mut header(tar::EntryType::Regular), format!("{end}f"), &b""[..]).unwrap();
        let link = format!("l{step}");
        builder.append_link(&mut header(tar::EntryType::Symlink), &link, end.trim_end_matches('/')).unwrap();
        begin = link + "/";
    }
    builder.into_inner().unwrap()
}

fn header(kind: tar::EntryType) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header
}

/// Makes such folders.
pub(crate) fn make(top: &Path, depth: usize) {
    std::fs::create_dir_all(top).unwrap();
    let mut current: OwnedFd = std::fs::File::open(top).unwrap().into();
    for _ in 0..depth {
        mkdirat(&current, "a", Mode::S_IRWXU).unwrap();
        current = openat(&current, "a", OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty()).unwrap();
    }
}
