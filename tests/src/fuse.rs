//! FUSE file systems with faults: one that never answers, and one whose only file backs a block device that fails or is
//! slow on command. Owns their server and their mount; ends both when dropped.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::Process;
use crate::wait::until;

/// A mounted file system and its server.
pub struct Fuse {
    at: PathBuf,
    server: Process,
}

impl Fuse {
    /// Mounts one that accepts every request and answers none, at `folder/NAME`.
    ///
    /// # Panics
    /// It cannot be built or mounted.
    #[must_use]
    pub fn silent(folder: &Path, name: &str) -> Self {
        Self::mount(folder, name, "silent", &[])
    }

    fn mount(folder: &Path, name: &str, kind: &str, more: &[&Path]) -> Self {
        let (program, log) = (folder.join(format!("{name}-server")), folder.join(format!("{name}-server.log")));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/fuse/server.c");
        let built = Command::new("gcc").args(["-O1", "-o"]).arg(&program).arg(source).status().expect("gcc starts");
        assert!(built.success(), "server.c can be built");
        let at = folder.join(name);
        std::fs::create_dir_all(&at).expect("a folder");
        let server = Process::start(Command::new(program).arg(kind).arg(&at).args(more), &log);
        let line = format!(" {} ", at.display());
        until(Duration::from_secs(10), "the file system is mounted", || {
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
            if mounts.contains(&line) { Ok(()) } else { Err(server.log()) }
        });
        Self { at, server }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // The end of the server ends all requests.
        self.server.kill();
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

/// A file for a loop device, healthy at first.
pub struct SickFile {
    fuse: Fuse,
    control: File,
}

impl SickFile {
    /// Mounts one whose bytes are in the sparse file `folder/NAME.backing`.
    ///
    /// # Panics
    /// It cannot be made or mounted.
    #[must_use]
    pub fn serve(folder: &Path, name: &str, megabytes: u64) -> Self {
        let (backing, control) = (folder.join(format!("{name}.backing")), folder.join(format!("{name}.control")));
        let sized = |path: &Path, length: u64| {
            let file = File::options().create(true).truncate(true).read(true).write(true).open(path).expect("a file");
            file.set_len(length).expect("sparse");
            file
        };
        sized(&backing, megabytes << 20);
        let of_server = sized(&control, 12);
        Self { fuse: Fuse::mount(folder, name, "device", &[&backing, &control]), control: of_server }
    }

    /// Path of the file for a loop device.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.fuse.path().join("disk")
    }

    /// Answers every read and write with EIO, or no longer.
    pub fn fail(&self, fails: bool) {
        self.set(0, i32::from(fails));
    }

    /// Makes every write take this long.
    pub fn slow(&self, milliseconds: i32) {
        self.set(1, milliseconds);
    }

    /// Writes so far.
    ///
    /// # Panics
    /// The control file cannot be read.
    #[must_use]
    pub fn writes(&self) -> i32 {
        let mut bytes = [0; 4];
        self.control.read_exact_at(&mut bytes, 8).expect("read");
        i32::from_ne_bytes(bytes)
    }

    fn set(&self, which: u64, value: i32) {
        self.control.write_all_at(&value.to_ne_bytes(), which * 4).expect("written");
    }
}
