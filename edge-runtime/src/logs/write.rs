//! Writes one container's log file and rotates it. Used by the monitor alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::cri::{LineSplitter, entry};
use super::limit::Limit;
use super::read::Stream;
use super::rotate;

/// Write once this much is formatted, so that a flood of short lines needs no large buffer.
const FLUSH_AT: usize = 32 * 1024;

/// An open log file, with the unfinished lines of both streams.
#[derive(Debug)]
pub struct LogWriter {
    path: PathBuf,
    file: File,
    size: u64,
    max_bytes: u64,
    max_files: u32,
    stdout: LineSplitter,
    stderr: LineSplitter,
    limit: Option<(Limit, Instant)>,
}

impl LogWriter {
    /// Opens or continues `path`. A last line torn by a crash is closed, so that the next one starts clean.
    pub fn open(path: &Path, max_bytes: u64, max_files: u32) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = open_append(path)?;
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
        Ok(Self {
            path: path.to_path_buf(),
            file,
            size,
            max_bytes: max_bytes.max(1),
            max_files: max_files.max(1),
            stdout: LineSplitter::default(),
            stderr: LineSplitter::default(),
            limit: None,
        })
    }

    /// Keeps no more than this; `None` for everything.
    #[must_use]
    pub fn limited(mut self, bytes_per_second: Option<u64>) -> Self {
        self.limit = bytes_per_second.map(|rate| (Limit::new(rate), Instant::now()));
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
        if let Some(notice) = self.limit.as_mut().and_then(|(limit, _)| limit.notice()) {
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
        if let Some((limit, since)) = self.limit.as_mut().filter(|_| !scratch.is_empty()) {
            let lines = scratch.iter().filter(|byte| **byte == b'\n').count();
            if !limit.admit(scratch.len(), lines, since.elapsed()) {
                scratch.clear();
                return Ok(());
            }
            if let Some(notice) = limit.notice() {
                let mut with_notice = Vec::new();
                entry(stamp, Stream::Stderr, b'F', notice.as_bytes(), &mut with_notice);
                with_notice.append(scratch);
                *scratch = with_notice;
            }
        }
        self.put(stamp, scratch)
    }

    /// What cannot be written (full disk) is lost, but in whole batches: lines are never torn, and the container is
    /// never held up.
    fn put(&mut self, stamp: &str, scratch: &mut Vec<u8>) -> io::Result<()> {
        if scratch.is_empty() {
            return Ok(());
        }
        let written = self.file.write_all(scratch);
        match &written {
            Ok(()) => self.size += scratch.len() as u64,
            Err(_) => self.file.set_len(self.size)?,
        }
        scratch.clear();
        if self.size >= self.max_bytes {
            self.rotate(stamp)?;
        }
        written
    }

    fn rotate(&mut self, stamp: &str) -> io::Result<()> {
        let old = rotate::rotated_files(&self.path);
        let keep = (self.max_files as usize).saturating_sub(2);
        for path in old.iter().take(old.len().saturating_sub(keep)) {
            fs::remove_file(path)?;
        }
        if self.max_files == 1 {
            self.file.set_len(0)?;
        } else {
            let name = self.path.file_name().and_then(|n| n.to_str()).unwrap_or("0.log");
            let folder = self.path.parent().unwrap_or(Path::new("/"));
            let newest = old.last().and_then(|path| path.file_name()?.to_str());
            let new_name = rotate::rotated_name(name, stamp, newest);
            fs::rename(&self.path, folder.join(new_name))?;
            self.file = open_append(&self.path)?;
        }
        self.size = 0;
        Ok(())
    }
}

fn open_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o640).open(path)
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
        for _ in 0..200 {
            writer.write(Stream::Stdout, &[b'x'; 99], T, &mut scratch).unwrap();
            writer.write(Stream::Stdout, b"\n", T, &mut scratch).unwrap();
        }
        writer.finish(T, &mut scratch).unwrap();
        let text = fs::read_to_string(&log).unwrap();
        let kept = text.lines().filter(|line| line.ends_with("xxx")).count();
        let said = text.lines().filter_map(|line| line.split_once("edge-runtime: ")?.1.split_once(" lines dropped"));
        let said: usize = said.map(|(number, _)| number.parse::<usize>().unwrap()).sum();
        assert!((20..100).contains(&kept), "{kept}");
        assert_eq!(kept + said, 200, "every line is there or counted");
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
}
