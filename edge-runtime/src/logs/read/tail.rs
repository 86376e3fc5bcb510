//! Where reading starts: which files, and at which byte of the first.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::options::LogOptions;
use crate::sys::files::unless_missing;
use sampan_monitor::logs::folder::open_file;
use sampan_monitor::logs::rotate::rotated_files;

const BLOCK: usize = 16 * 1024;

/// All files of the log that exist, oldest first, the current one last.
pub(super) fn all_files(path: &Path) -> Vec<PathBuf> {
    let mut files = rotated_files(path);
    files.push(path.to_path_buf());
    files
}

/// Files to read, oldest first, and the offset in the first one.
pub(super) fn start(path: &Path, options: &LogOptions) -> io::Result<(Vec<PathBuf>, u64)> {
    if let Some(lines) = options.tail_lines {
        return tail(path, lines);
    }
    let mut files = all_files(path);
    let needed = match options.since {
        // A file last written before that time has nothing to tell.
        Some(since) => files.iter().rev().skip(1).take_while(|f| written_after(f, since)).count() + 1,
        None => 1,
    };
    files.drain(..files.len() - needed);
    Ok((files, 0))
}

fn written_after(file: &Path, since: jiff::Timestamp) -> bool {
    let written = fs::metadata(file).and_then(|m| m.modified());
    written.is_ok_and(|t| jiff::Timestamp::try_from(t).is_ok_and(|t| t >= since))
}

/// The last `lines` lines, counted as entries of the files like the kubelet does.
fn tail(path: &Path, lines: u64) -> io::Result<(Vec<PathBuf>, u64)> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut missing = lines;
    for file in all_files(path).into_iter().rev() {
        let open = unless_missing(open_file(&file, false))?;
        let (found, offset) = open.map_or(Ok((0, 0)), |open| last_lines(open, missing))?;
        files.insert(0, file);
        missing -= found;
        if missing == 0 {
            return Ok((files, offset));
        }
    }
    Ok((files, 0))
}

/// How many of the last `wanted` lines the file has, and where the first of them begins. An unfinished last line
/// does not count.
fn last_lines(mut file: File, wanted: u64) -> io::Result<(u64, u64)> {
    let mut position = file.seek(SeekFrom::End(0))?;
    let mut block = vec![0; BLOCK];
    // The first newline from behind ends the last line; each further one ends the line before.
    let mut newlines = 0;
    while position > 0 {
        let length = position.min(BLOCK as u64);
        position -= length;
        let bytes = &mut block[..usize::try_from(length).unwrap_or(BLOCK)];
        file.seek(SeekFrom::Start(position))?;
        file.read_exact(bytes)?;
        for (at, _) in bytes.iter().enumerate().rev().filter(|(_, b)| **b == b'\n') {
            if newlines == wanted {
                return Ok((wanted, position + at as u64 + 1));
            }
            newlines += 1;
        }
    }
    Ok((newlines, 0))
}
