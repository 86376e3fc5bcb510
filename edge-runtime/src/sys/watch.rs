//! Notices changes in a folder (inotify). Knows nothing of what the files mean.

use std::io;
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use smol::Async;

/// A watched folder.
pub struct FolderWatch(Async<Inotify>);

impl FolderWatch {
    /// Watches files coming, going and being written in `folder`, which must exist.
    ///
    /// # Errors
    /// The folder is missing or the kernel's limit of watches is reached.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let flags = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_DELETE;
        inotify.add_watch(folder, flags)?;
        Ok(Self(Async::new(inotify)?))
    }

    /// Waits until something changed; several changes may be told as one.
    ///
    /// # Errors
    /// The descriptor fails.
    pub async fn changed(&self) -> io::Result<()> {
        self.0.read_with(|inotify| inotify.read_events().map_err(io::Error::from)).await.map(drop)
    }
}
