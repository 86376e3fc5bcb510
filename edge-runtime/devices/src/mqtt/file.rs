//! Opens files with passwords, beside the loop.

use std::io;
use std::path::Path;

use tokio::fs::File;
use tokio::task::spawn_blocking;

/// Opens a regular file. A pipe would hold a thread for each try.
pub(super) async fn open(path: &Path) -> io::Result<File> {
    let path = path.to_owned();
    let opened = spawn_blocking(move || sampan_file::open(&path)).await?;
    opened.map(File::from_std)
}
