//! An ext4 file system of its own, that goes bad on command. Owns the devices and mounts it makes; all are undone when it
//! is dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sampan_tests::SickFile;

pub(crate) struct Disk {
    folder: PathBuf,
    at: PathBuf,
    megabytes: u64,
    /// All of them, the present one last.
    cards: Vec<Card>,
}

struct Card {
    file: PathBuf,
    device: String,
    sick: Option<SickFile>,
}

impl Disk {
    /// `None` without loop devices.
    pub(crate) fn mount(folder: &Path, at: &Path, megabytes: u64) -> Option<Self> {
        let file = folder.join("card-0");
        fs::File::create(&file).and_then(|file| file.set_len(megabytes << 20)).expect("a sparse file");
        Self::begin(folder, at, megabytes, file, None)
    }

    /// Mounts it on a device that can be told to fail or to be slow.
    pub(crate) fn sick(folder: &Path, at: &Path, megabytes: u64) -> Option<Self> {
        let sick = SickFile::serve(folder, "sick", megabytes);
        Self::begin(folder, at, megabytes, sick.path(), Some(sick))
    }

    fn begin(folder: &Path, at: &Path, megabytes: u64, file: PathBuf, sick: Option<SickFile>) -> Option<Self> {
        fs::create_dir_all(at).expect("a folder");
        let mut disk = Self { folder: folder.into(), at: at.into(), megabytes, cards: Vec::new() };
        // Where no card is nothing can be written.
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "ro,size=4k", "no-card"]).arg(at));
        disk.insert(file, sick, true).then_some(disk)
    }

    fn insert(&mut self, file: PathBuf, sick: Option<SickFile>, make: bool) -> bool {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(&file).output().expect("losetup starts");
        if !output.status.success() {
            return false;
        }
        let device = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        self.cards.push(Card { file, device: device.clone(), sick });
        if make {
            let options = ["-q", "-F", "-m", "0", "-N", "4096", "-J", "size=4", "-E", "lazy_itable_init=0,nodiscard"];
            run(Command::new("mkfs.ext4").args(options).arg(&device));
        }
        if self.cards.len() > 1 {
            run(Command::new("umount").arg("-l").arg(&self.at));
        }
        // As the installers of Debian and its relatives have it.
        run(Command::new("mount").args(["-o", "errors=remount-ro"]).arg(&device).arg(&self.at));
        true
    }

    pub(crate) fn sickness(&self) -> &SickFile {
        self.cards.last().and_then(|card| card.sick.as_ref()).expect("made to be sick")
    }

    /// What the kernel does when the medium fails: every change is refused, also to files that are open.
    pub(crate) fn abort(&self) {
        // The last bytes are the kernel's, not the test's.
        let _ = Command::new("sync").arg("-f").arg(&self.at).status();
        run(Command::new("mount").args(["-o", "remount,abort"]).arg(&self.at));
    }

    /// Every read and write of the device fails, and the file system finds out.
    pub(crate) fn fail(&self) {
        self.sickness().fail(true);
        let _ = Command::new("sync").arg("-f").arg(&self.at).stderr(Stdio::null()).status();
    }

    /// Another card, empty.
    pub(crate) fn replace(&mut self) {
        let file = self.next();
        fs::File::create(&file).and_then(|file| file.set_len(self.megabytes << 20)).expect("a sparse file");
        assert!(self.insert(file, None, true), "a loop device");
    }

    /// Another card, with what could be read of this one.
    pub(crate) fn rescue(&mut self) {
        let file = self.next();
        let from = self.cards.last().expect("a card");
        if let Some(sick) = &from.sick {
            // In another reader, perhaps. What was not written is not there.
            sick.fail(false);
        }
        run(Command::new("cp").arg("--sparse=always").arg(&from.file).arg(&file));
        // 1: it has mended something.
        let check = Command::new("e2fsck").args(["-fy"]).arg(&file).stdout(Stdio::null()).status();
        assert!(check.expect("e2fsck starts").code().is_some_and(|code| code <= 1), "mended");
        assert!(self.insert(file, None, false), "a loop device");
    }

    fn next(&self) -> PathBuf {
        self.folder.join(format!("card-{}", self.cards.len()))
    }

    /// No byte is left.
    pub(crate) fn fill(&self) {
        let filler = format!("of={}", self.at.join("filler").display());
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", "bs=4k", "oflag=append", "conv=notrunc", &filler]).stderr(Stdio::null());
        assert!(!dd.status().expect("dd starts").success(), "it is full");
    }

    /// No file can be made.
    pub(crate) fn take_inodes(&self) {
        let make = |number| fs::File::create(self.at.join(format!("filler{number}")));
        assert!((0..10_000).any(|number| make(number).is_err()), "none is left");
    }

    pub(crate) fn free(&self) {
        for entry in fs::read_dir(&self.at).expect("a folder").flatten() {
            if entry.file_name().to_string_lossy().starts_with("filler") {
                fs::remove_file(entry.path()).expect("removed");
            }
        }
    }
}

/// Takes the disk away before the node that is declared before it is taken down, when a test fails: nothing can be removed
/// from a disk that refuses. A test that ends well has mended it.
pub(crate) struct Away(PathBuf);

impl Disk {
    pub(crate) fn away_on_failure(&self) -> Away {
        Away(self.at.clone())
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Both the card and what is below it.
        for _ in 0..2 {
            let _ = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
        }
        for card in &self.cards {
            // One that is still held goes with its last holder.
            let _ = Command::new("losetup").arg("-d").arg(&card.device).status();
        }
    }
}

fn run(command: &mut Command) {
    assert!(command.status().expect("it starts").success(), "{command:?}");
}
