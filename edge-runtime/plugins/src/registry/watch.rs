//! Notices changes of a folder (inotify(7)).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::unix::AsyncFd;

/// Watches from its beginning.
#[derive(Debug)]
pub(super) struct Watch(AsyncFd<File>);

impl Watch {
    /// # Errors
    /// The folder is missing, or the kernel has no watch left.
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let come = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
        let go = AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM | AddWatchFlags::IN_DELETE_SELF;
        inotify.add_watch(folder, come | go | AddWatchFlags::IN_ONLYDIR)?;
        let events = File::from(inotify.as_fd().try_clone_to_owned()?);
        // SAFETY: the file owns its descriptor, and is neither replaced nor closed while it is registered.
        #[allow(unsafe_code)]
        let events = unsafe { AsyncFd::register(events)? };
        Ok(Self(events))
    }

    /// Returns after a change, or when changes cannot be noticed: the caller looks in both cases.
    pub(super) async fn changed(&self) {
        let Ok(mut ready) = self.0.readable().await else { return };
        // What has changed is seen in the folder.
        let mut events = [0; 4_096];
        let _ = ready.try_io(|events_of| {
            let mut file = events_of.get_ref();
            file.read(&mut events)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[test]
    fn changes_are_noticed() {
        let folder = tempfile::tempdir().expect("temp dir");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            assert!(Watch::new(&folder.path().join("missing")).is_err());
            let watch = Watch::new(folder.path()).expect("a folder");
            assert!(timeout(Duration::from_millis(100), watch.changed()).await.is_err(), "nothing has changed");
            let changes: [fn(&Path) -> io::Result<()>; 3] = [
                |folder| std::fs::write(folder.join("a"), ""),
                |folder| std::fs::rename(folder.join("a"), folder.join("b")),
                |folder| std::fs::remove_file(folder.join("b")),
            ];
            for change in changes {
                let watch = Watch::new(folder.path()).expect("a folder");
                change(folder.path()).expect("changed");
                timeout(Duration::from_secs(30), watch.changed()).await.expect("it is noticed");
            }
        });
    }
}
