//! A writable layer is of one boot. After a power cut it holds whatever had reached the disk by then, files of no length
//! and pid files of the dead among it: a start that the cut has undone gets a clean one.

use std::io;
use std::path::Path;

use crate::sys::trash::Trash;

/// File in an attempt's folder with the boot in which its layer was made. Not synced: if a power cut loses it, the
/// files beside it may be lost, too.
const MARK: &str = "boot";

/// Deletes files of an earlier boot in an attempt's folder. None of them may be mounted.
///
/// # Errors
/// It cannot be moved away, or the mark not be written.
pub(super) fn renew(dir: &Path, boot_id: &str, trash: &Trash) -> io::Result<()> {
    let mark = dir.join(MARK);
    if std::fs::read_to_string(&mark).is_ok_and(|of| of == boot_id) {
        return Ok(());
    }
    for part in ["upper", "work", "termination-log", super::image_volumes::FOLDER] {
        trash.throw(&dir.join(part))?;
    }
    std::fs::write(mark, boot_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_another_boot_wrote_is_gone_and_what_this_one_wrote_stays() {
        let temp = tempfile::tempdir().unwrap();
        let (dir, trash) = (temp.path().join("c/0"), Trash::new(temp.path().join("trash")));
        let write = || {
            fs::create_dir_all(dir.join("upper/var")).unwrap();
            fs::create_dir_all(dir.join("work/work")).unwrap();
            fs::write(dir.join("upper/var/app.pid"), "7").unwrap();
        };
        write();
        // From an unknown boot.
        renew(&dir, "one", &trash).unwrap();
        assert!(!dir.join("upper").exists() && !dir.join("work").exists());
        write();
        renew(&dir, "one", &trash).unwrap();
        assert!(dir.join("upper/var/app.pid").exists(), "a repeated step of the same start");
        renew(&dir, "two", &trash).unwrap();
        assert!(!dir.join("upper").exists());
        assert_eq!(fs::read_to_string(dir.join(MARK)).unwrap(), "two");
    }
}
