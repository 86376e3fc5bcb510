//! A separate ext4 file system that fails on command. Owns the devices and mounts that it creates, and removes all of
//! them when it is dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sampan_tests::SickFile;

pub(crate) struct Disk {
    folder: PathBuf,
    at: PathBuf,
    megabytes: u64,
    /// All cards, the present one last.
    cards: Vec<Card>,
}

struct Card {
    file: PathBuf,
    device: String,
    sick: Option<SickFile>,
}

impl Disk {
    /// Mounts an ext4 file system of this size at `at`; `None` without loop devices.
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
        // Without a card nothing can be written.
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
        // As the installers of Debian and its derivatives mount it.
        run(Command::new("mount").args(["-o", "errors=remount-ro"]).arg(&device).arg(&self.at));
        true
    }

    pub(crate) fn sickness(&self) -> &SickFile {
        self.cards.last().and_then(|card| card.sick.as_ref()).expect("made to be sick")
    }

    /// Acts like the kernel when the medium fails: every change is refused, also to open files.
    pub(crate) fn abort(&self) {
        // Syncs first, so that only the kernel's last writes are lost, not the test's.
        let _ = Command::new("sync").arg("-f").arg(&self.at).status();
        run(Command::new("mount").args(["-o", "remount,abort"]).arg(&self.at));
    }

    /// Lets every read and write of the device fail, so that the file system notices.
    pub(crate) fn fail(&self) {
        self.sickness().fail(true);
        let _ = Command::new("sync").arg("-f").arg(&self.at).stderr(Stdio::null()).status();
    }

    /// Replaces the card by an empty one.
    pub(crate) fn replace(&mut self) {
        let file = self.next();
        fs::File::create(&file).and_then(|file| file.set_len(self.megabytes << 20)).expect("a sparse file");
        assert!(self.insert(file, None, true), "a loop device");
    }

    /// Replaces the card by one with everything that can be read of this one.
    pub(crate) fn rescue(&mut self) {
        let file = self.next();
        let from = self.cards.last().expect("a card");
        if let Some(sick) = &from.sick {
            // As in another reader, which can read the card. Data that was not written is missing.
            sick.fail(false);
        }
        run(Command::new("cp").arg("--sparse=always").arg(&from.file).arg(&file));
        // Exit code 1: it has corrected errors.
        let check = Command::new("e2fsck").args(["-fy"]).arg(&file).stdout(Stdio::null()).status();
        assert!(check.expect("e2fsck starts").code().is_some_and(|code| code <= 1), "mended");
        assert!(self.insert(file, None, false), "a loop device");
    }

    fn next(&self) -> PathBuf {
        self.folder.join(format!("card-{}", self.cards.len()))
    }

    /// Fills the disk to the last byte.
    pub(crate) fn fill(&self) {
        let filler = format!("of={}", self.at.join("filler").display());
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", "bs=4k", "oflag=append", "conv=notrunc", &filler]).stderr(Stdio::null());
        assert!(!dd.status().expect("dd starts").success(), "it is full");
    }

    /// Uses up all inodes.
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

/// Takes the disk away when a test fails, before the node declared earlier is dropped: nothing can be removed from a
/// disk that refuses writes. A test that succeeds has repaired the disk.
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
        // Both the card and the file system below it.
        for _ in 0..2 {
            let _ = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
        }
        for card in &self.cards {
            // A loop device in use is removed with its last user.
            let _ = Command::new("losetup").arg("-d").arg(&card.device).status();
        }
    }
}

fn run(command: &mut Command) {
    assert!(command.status().expect("it starts").success(), "{command:?}");
}
