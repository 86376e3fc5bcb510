//! Notices changes in a folder (inotify), also after it was deleted and created again. Does not know the files.

use std::io;
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use smol::Async;

/// A watched folder.
pub struct FolderWatch(Async<Inotify>);

impl FolderWatch {
    /// Watches files coming, going and being written in `folder`, and the folder itself coming and going in its parent.
    /// Either may be missing.
    ///
    /// # Errors
    /// The kernel's limit of watches is reached.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let watch = Self(Async::new(Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?)?);
        watch.add(folder);
        Ok(watch)
    }

    /// Adds a watch. It belongs to an inode: the next folder of that name needs another one. For the same inode it
    /// stays the same.
    fn add(&self, folder: &Path) {
        let come_and_go = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_MOVED_FROM | AddWatchFlags::IN_DELETE;
        let inotify = self.0.get_ref();
        let _ = inotify.add_watch(folder, come_and_go | AddWatchFlags::IN_CLOSE_WRITE);
        if let Some(parent) = folder.parent() {
            let _ = inotify.add_watch(parent, come_and_go | AddWatchFlags::IN_CREATE);
        }
    }

    /// Waits for a change; several changes may count as one.
    ///
    /// # Errors
    /// The descriptor fails.
    pub async fn changed(&self, folder: &Path) -> io::Result<()> {
        self.0.read_with(|inotify| inotify.read_events().map_err(io::Error::from)).await?;
        self.add(folder);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_folder_that_is_replaced_is_watched_again() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("manifests");
        fs::create_dir(&folder).unwrap();
        let watch = FolderWatch::new(&folder).unwrap();
        smol::block_on(async {
            fs::write(folder.join("a"), "a").unwrap();
            watch.changed(&folder).await.unwrap();
            fs::remove_dir_all(&folder).unwrap();
            watch.changed(&folder).await.unwrap();
            fs::create_dir(&folder).unwrap();
            watch.changed(&folder).await.unwrap();
            // Takes late events before the new file is created.
            while smol::future::or(async { watch.changed(&folder).await.is_ok() }, async {
                smol::Timer::after(std::time::Duration::from_millis(50)).await;
                false
            })
            .await
            {}
            fs::write(folder.join("b"), "b").unwrap();
            let told = async { watch.changed(&folder).await.is_ok() };
            let late = async {
                smol::Timer::after(std::time::Duration::from_secs(10)).await;
                false
            };
            assert!(smol::future::or(told, late).await);
        });
    }
}
