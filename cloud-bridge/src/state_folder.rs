//! The state folder of a standalone bridge: whether a restore left it half filled.

use std::path::Path;

use anyhow::ensure;

/// Folder in which a restore prepares its files, below the state folder.
pub(crate) const RESTORING: &str = "restore.new";

/// Refuses a folder in which a restore was cut off: the bridge would begin with an empty API and another authority.
///
/// # Errors
/// The restore has to be repeated.
pub(crate) fn ensure_whole(folder: &Path) -> anyhow::Result<()> {
    let half = folder.join(RESTORING);
    ensure!(
        !half.exists(),
        "{}: a restore was cut off: repeat cloud-bridge restore FILE; remove this folder only if the state folder is as before",
        half.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bridge_does_not_start_in_a_half_restored_folder() {
        let folder = tempfile::tempdir().unwrap();
        ensure_whole(folder.path()).unwrap();
        std::fs::create_dir(folder.path().join(RESTORING)).unwrap();
        assert!(ensure_whole(folder.path()).unwrap_err().to_string().contains("cloud-bridge restore"));
    }
}
