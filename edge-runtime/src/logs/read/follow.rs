//! Following a log: to be woken when its folder changes, and to find the files that came after the one being read.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use smol::Async;

use super::tail::all_files;

/// Wakes on writes to and renames of the folder's files.
pub(super) struct Watch(Async<Inotify>);

impl Watch {
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let changes = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
        inotify.add_watch(folder, changes)?;
        Ok(Self(Async::new(inotify)?))
    }

    /// Resolves after a change since the last call; several may count as one.
    pub(super) async fn changed(&mut self) -> io::Result<()> {
        self.0.read_with(|inotify| inotify.read_events().map_err(io::Error::from)).await.map(drop)
    }
}

/// Files newer than `file`, oldest first; empty while `file` is the current one. If it is not there any more, all
/// that are.
pub(super) fn newer_files(file: Option<&File>, current: &Path) -> io::Result<Vec<PathBuf>> {
    let Some(file) = file else {
        return Ok(if current.exists() { all_files(current) } else { Vec::new() });
    };
    let ours = file.metadata()?;
    let is_ours = |path: &Path| fs::metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == (ours.dev(), ours.ino()));
    if is_ours(current) || !current.exists() {
        return Ok(Vec::new());
    }
    let mut files = all_files(current);
    if let Some(at) = files.iter().position(|path| is_ours(path)) {
        files.drain(..=at);
    }
    Ok(files)
}
