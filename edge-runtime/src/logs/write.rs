//! Writes one container's log file and rotates it. Used by the monitor alone.
//!
//! Whatever the disk does, the container goes on: what cannot be written is dropped and counted, and the log says so
//! once it can be written again.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::cri::{LineSplitter, entry};
use super::folder::{Folder, open_file};
use super::limit::Limit;
use super::losses::Losses;
use super::read::Stream;
use super::rotate;

/// Write once this much is formatted, so that a flood of short lines needs no large buffer.
const FLUSH_AT: usize = 32 * 1024;

/// Pause between attempts to open or rotate a log that would not be.
const AGAIN: Duration = Duration::from_secs(1);

/// A log file, with the unfinished lines of both streams.
#[derive(Debug)]
pub struct LogWriter {
    path: PathBuf,
    /// None while it cannot be opened.
    file: Option<File>,
    /// What of the file is whole lines.
    size: u64,
    /// There is half a batch behind `size`, which could not be taken back.
    torn: bool,
    max_bytes: u64,
    max_files: u32,
    stdout: LineSplitter,
    stderr: LineSplitter,
    limit: Option<Limit>,
    lost: Losses,
    since: Instant,
    /// Opening or rotating failed: not before then.
    again: Option<Instant>,
}

impl LogWriter {
    /// Opens or continues `path`. A last line torn by a crash is closed, so that the next one starts clean.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open(path: &Path, max_bytes: u64, max_files: u32) -> io::Result<Self> {
        let mut log = Self::closed(path, max_bytes, max_files);
        log.reopen()?;
        Ok(log)
    }

    /// As [`LogWriter::open`] for a container that runs already: if the log cannot be opened now, it is tried again
    /// when there is something to log, and what comes meanwhile is counted.
    pub fn open_some_time(path: &Path, max_bytes: u64, max_files: u32) -> (Self, io::Result<()>) {
        let mut log = Self::closed(path, max_bytes, max_files);
        let opened = log.reopen();
        (log, opened)
    }

    fn closed(path: &Path, max_bytes: u64, max_files: u32) -> Self {
        Self {
            path: path.to_path_buf(),
            file: None,
            size: 0,
            torn: false,
            max_bytes: max_bytes.max(1),
            max_files: max_files.max(1),
            stdout: LineSplitter::default(),
            stderr: LineSplitter::default(),
            limit: None,
            lost: Losses::default(),
            since: Instant::now(),
            again: None,
        }
    }

    /// Keeps no more than this; `None` for everything.
    #[must_use]
    pub fn limited(mut self, bytes_per_second: Option<u64>) -> Self {
        self.limit = bytes_per_second.map(Limit::new);
        self
    }

    /// Logs what the container wrote. `scratch` is borrowed space, empty before and after.
    pub fn write(&mut self, stream: Stream, input: &[u8], stamp: &str, scratch: &mut Vec<u8>) -> io::Result<()> {
        let mut outcome = Ok(());
        // In pieces, because a piece of nothing but newlines grows forty-fold.
        for piece in input.chunks(2048) {
            self.splitter(stream).push(stamp, stream, piece, scratch);
            if scratch.len() >= FLUSH_AT {
                outcome = outcome.and(self.flush(stamp, scratch));
            }
        }
        outcome.and(self.flush(stamp, scratch))
    }

    /// Both streams have ended: unfinished lines go out.
    pub fn finish(&mut self, stamp: &str, scratch: &mut Vec<u8>) -> io::Result<()> {
        self.stdout.finish(stamp, Stream::Stdout, scratch);
        self.stderr.finish(stamp, Stream::Stderr, scratch);
        let outcome = self.flush(stamp, scratch);
        if let Some(notice) = self.limit.as_mut().and_then(Limit::notice) {
            entry(stamp, Stream::Stderr, b'F', notice.as_bytes(), scratch);
        }
        outcome.and(self.put(stamp, scratch))
    }

    fn splitter(&mut self, stream: Stream) -> &mut LineSplitter {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    /// Writes what the limit lets through, behind a line about what it did not.
    fn flush(&mut self, stamp: &str, scratch: &mut Vec<u8>) -> io::Result<()> {
        if let Some(limit) = self.limit.as_mut().filter(|_| !scratch.is_empty()) {
            let admitted = limit.admit(scratch, self.since.elapsed());
            scratch.truncate(admitted.bytes);
            if let Some(notice) = admitted.notice {
                let mut with_notice = Vec::with_capacity(notice.len() + scratch.len());
                entry(stamp, Stream::Stderr, b'F', notice.as_bytes(), &mut with_notice);
                with_notice.append(scratch);
                *scratch = with_notice;
            }
        }
        self.put(stamp, scratch)
    }

    /// What cannot be written is lost, but in whole batches: lines are never torn, and the container is never held up.
    /// `scratch` is empty afterwards in any case: it is everybody's, and must neither grow nor carry the lines of one
    /// container into the log of another.
    fn put(&mut self, stamp: &str, scratch: &mut Vec<u8>) -> io::Result<()> {
        let written = self.try_put(stamp, scratch);
        if let Err(error) = &written {
            self.lost.add(scratch, error);
        }
        scratch.clear();
        // The lines are there, or counted: that the file could not be changed for the next ones is another matter.
        written.and_then(|()| self.rotate_if_due(stamp))
    }

    fn try_put(&mut self, stamp: &str, batch: &[u8]) -> io::Result<()> {
        let said = self.lost.notice();
        if batch.is_empty() && said.is_none() {
            return Ok(());
        }
        if self.file.is_none() {
            self.wait_over()?;
            self.reopen().inspect_err(|_| self.again = Some(Instant::now() + AGAIN))?;
        }
        if self.size >= self.max_bytes.saturating_mul(2) {
            self.rotate_if_due(stamp)?;
            if self.size > 0 {
                return Err(io::Error::other("the log cannot be rotated"));
            }
        }
        let Some(file) = self.file.as_mut() else { return Err(io::ErrorKind::NotFound.into()) };
        if self.torn {
            file.set_len(self.size)?;
            self.torn = false;
        }
        let mut notice = Vec::new();
        if let Some(text) = said {
            entry(stamp, Stream::Stderr, b'F', text.as_bytes(), &mut notice);
        }
        match file.write_all(&notice).and_then(|()| file.write_all(batch)) {
            Ok(()) => {
                self.size += (notice.len() + batch.len()) as u64;
                self.lost.told();
                Ok(())
            }
            Err(error) => {
                // Refused, too, on a file system that has turned read-only.
                self.torn = file.set_len(self.size).is_err();
                Err(error)
            }
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        let folder = Folder::make(&self.path)?;
        let mut file = open_file(&folder.path().join(self.name()), true)?;
        let mut size = file.seek(SeekFrom::End(0))?;
        if size > 0 {
            let mut last = [0];
            file.seek(SeekFrom::Start(size - 1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
                size += 1;
            }
        }
        (self.file, self.size, self.torn, self.again) = (Some(file), size, false, None);
        Ok(())
    }

    fn wait_over(&self) -> io::Result<()> {
        match self.again {
            Some(at) if Instant::now() < at => Err(io::Error::other("the log cannot be opened")),
            _ => Ok(()),
        }
    }

    fn rotate_if_due(&mut self, stamp: &str) -> io::Result<()> {
        if self.size < self.max_bytes || self.wait_over().is_err() {
            return Ok(());
        }
        self.again = None;
        self.rotate(stamp).inspect_err(|_| self.again = Some(Instant::now() + AGAIN))
    }

    /// Until it succeeds, the file goes on and may become twice as long.
    fn rotate(&mut self, stamp: &str) -> io::Result<()> {
        let folder = Folder::of(&self.path)?;
        let path = folder.path().join(self.name());
        let old = rotate::rotated_files(&path);
        let keep = (self.max_files as usize).saturating_sub(2);
        for path in old.iter().take(old.len().saturating_sub(keep)) {
            absent_is_fine(fs::remove_file(path))?;
        }
        if self.max_files == 1 {
            self.file.as_ref().map_or(Ok(()), |file| file.set_len(0))?;
        } else {
            let newest = old.last().and_then(|path| path.file_name()?.to_str());
            let rotated = folder.path().join(rotate::rotated_name(&self.name(), stamp, newest));
            // Absent: put away by an attempt that could not make the new file, nor undo what it had done.
            absent_is_fine(fs::rename(&path, &rotated))?;
            match open_file(&path, true) {
                Ok(file) => self.file = Some(file),
                Err(error) => {
                    // No inode is left, for one: readers look for the current file under its name.
                    let _ = fs::rename(&rotated, &path);
                    return Err(error);
                }
            }
        }
        (self.size, self.torn) = (0, false);
        Ok(())
    }

    fn name(&self) -> String {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or("0.log").to_owned()
    }
}

fn absent_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: &str = "2026-01-02T03:04:05.000000006Z";

    fn all_text(log: &Path) -> String {
        let mut text = String::new();
        for path in rotate::rotated_files(log).iter().chain([&log.to_path_buf()]) {
            text += &fs::read_to_string(path).unwrap();
        }
        text
    }

    #[test]
    fn rotation_loses_nothing_but_the_oldest() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("c/0.log");
        let (mut writer, mut scratch) = (LogWriter::open(&log, 1000, 5).unwrap(), Vec::new());
        for n in 0..200 {
            writer.write(Stream::Stdout, format!("line {n}\n").as_bytes(), T, &mut scratch).unwrap();
        }
        assert_eq!(rotate::rotated_files(&log).len(), 4);
        let text = all_text(&log);
        let numbers: Vec<u32> = text.lines().map(|l| l.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        assert_eq!(*numbers.last().unwrap(), 199);
        assert!(numbers.windows(2).all(|w| w[1] == w[0] + 1), "no gap: {numbers:?}");
        assert!(numbers.len() >= 80, "{}", numbers.len());
    }

    #[test]
    fn a_limited_log_says_what_it_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        let writer = LogWriter::open(&log, 1 << 20, 5).unwrap().limited(Some(1024));
        let (mut writer, mut scratch) = (writer, Vec::new());
        for _ in 0..5000 {
            writer.write(Stream::Stdout, &[b'x'; 99], T, &mut scratch).unwrap();
            writer.write(Stream::Stdout, b"\n", T, &mut scratch).unwrap();
        }
        writer.finish(T, &mut scratch).unwrap();
        let text = fs::read_to_string(&log).unwrap();
        let kept = text.lines().filter(|line| line.ends_with("xxx")).count();
        let said = text.lines().filter_map(|line| line.split_once("edge-runtime: ")?.1.split_once(" lines dropped"));
        let said: usize = said.map(|(number, _)| number.parse::<usize>().unwrap()).sum();
        assert!((2000..4000).contains(&kept), "{kept}");
        assert_eq!(kept + said, 5000, "every line is there or counted");
    }

    #[test]
    fn a_torn_line_is_closed_when_the_file_is_continued() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        fs::write(&log, "2026-01-02T03:04:05Z stdout F tor").unwrap();
        let (mut writer, mut scratch) = (LogWriter::open(&log, 1000, 5).unwrap(), Vec::new());
        writer.write(Stream::Stderr, b"next", T, &mut scratch).unwrap();
        writer.finish(T, &mut scratch).unwrap();
        let text = fs::read_to_string(&log).unwrap();
        assert_eq!(text, format!("2026-01-02T03:04:05Z stdout F tor\n{T} stderr P next\n"));
    }

    /// A file of the kind that a read-only file system leaves: it takes neither bytes nor another length.
    fn refusing() -> File {
        let (reader, _) = io::pipe().unwrap();
        File::from(std::os::fd::OwnedFd::from(reader))
    }

    #[test]
    fn what_a_bad_disk_refuses_is_counted_and_goes_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let (bad, good) = (dir.path().join("bad/0.log"), dir.path().join("good/0.log"));
        let mut scratch = Vec::new();
        let mut one = LogWriter::open(&bad, 1 << 20, 5).unwrap();
        let mut other = LogWriter::open(&good, 1 << 20, 5).unwrap();
        let file = one.file.replace(refusing());
        for _ in 0..1000 {
            one.write(Stream::Stdout, &b"mine\n".repeat(100), T, &mut scratch).unwrap_err();
            other.write(Stream::Stdout, b"yours\n", T, &mut scratch).unwrap();
            assert!(scratch.is_empty());
        }
        assert!(scratch.capacity() < 256 << 10, "{}", scratch.capacity());
        let text = fs::read_to_string(&good).unwrap();
        assert!(text.lines().count() == 1000 && !text.contains("mine"));
        one.file = file;
        one.write(Stream::Stdout, b"again\n", T, &mut scratch).unwrap();
        one.write(Stream::Stdout, b"and on\n", T, &mut scratch).unwrap();
        let text = fs::read_to_string(&bad).unwrap();
        let lines: Vec<_> = text.lines().map(|line| &line[T.len() + 1..]).collect();
        assert!(lines[0].starts_with("stderr F [edge-runtime: 100000 lines dropped, they could not be written: "));
        assert_eq!(lines[1..], ["stdout F again", "stdout F and on"], "told once");
    }

    #[test]
    fn a_rotation_that_finds_no_inode_is_made_up_for() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let flags = nix::mount::MsFlags::empty();
        // The root, the container's folder, its log, and none for another.
        nix::mount::mount(Some("logs"), dir.path(), Some("tmpfs"), flags, Some("nr_inodes=3")).unwrap();
        let log = dir.path().join("c/0.log");
        let (mut writer, mut scratch) = (LogWriter::open(&log, 1000, 5).unwrap(), Vec::new());
        let mut failures = 0;
        for n in 0..200 {
            let line = format!("line {n}\n");
            failures += usize::from(writer.write(Stream::Stdout, line.as_bytes(), T, &mut scratch).is_err());
        }
        let (size, names) = (fs::metadata(&log).unwrap().len(), fs::read_dir(log.parent().unwrap()).unwrap().count());
        nix::mount::mount(None::<&str>, dir.path(), None::<&str>, nix::mount::MsFlags::MS_REMOUNT, Some("nr_inodes=9"))
            .unwrap();
        std::thread::sleep(AGAIN);
        for _ in 0..2 {
            writer.write(Stream::Stdout, b"well\n", T, &mut scratch).unwrap();
        }
        let (text, rotated) = (all_text(&log), rotate::rotated_files(&log).len());
        drop(writer);
        nix::mount::umount(dir.path()).unwrap();
        assert!(
            failures > 0 && (2000..2100).contains(&size) && names == 1,
            "{failures} failures, {size} bytes, {names} files"
        );
        assert_eq!(rotated, 1);
        assert!(
            text.ends_with("stdout F well\n") && text.contains(" lines dropped, they could not be written: "),
            "{text}"
        );
    }

    #[test]
    fn a_log_that_cannot_be_opened_yet_counts() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("pod/c/0.log");
        fs::write(dir.path().join("pod"), "").unwrap();
        assert!(LogWriter::open(&log, 1000, 5).is_err());
        let (mut writer, opened) = LogWriter::open_some_time(&log, 1000, 5);
        opened.unwrap_err();
        let mut scratch = Vec::new();
        writer.write(Stream::Stdout, b"lost\n", T, &mut scratch).unwrap_err();
        fs::remove_file(dir.path().join("pod")).unwrap();
        std::thread::sleep(AGAIN);
        writer.write(Stream::Stdout, b"kept\n", T, &mut scratch).unwrap();
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.contains("1 lines dropped") && text.ends_with("stdout F kept\n"), "{text}");
    }
}
