//! Starts the write-back of data as it arrives. Otherwise a whole layer accumulates in the page cache, and every sync
//! of a small file by another process waits for all of it (ext4 writes the data of a transaction with it).
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::libc;

/// Bytes between two write-backs. About twice as many are being written back at most.
const STEP: u64 = 4 << 20;
/// Maximum number of small files that wait together.
const MOST_FILES: usize = 64;

/// Counts what is written.
#[derive(Debug, Default)]
pub struct Writeback {
    bytes: u64,
    small: Vec<File>,
}

impl Writeback {
    /// Records that `bytes` more bytes were written to `file`, which will grow further.
    pub fn wrote(&mut self, file: &File, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if self.bytes >= STEP {
            flush(file);
            self.flush_small();
        }
    }

    /// A file is finished.
    pub fn finished(&mut self, file: File) {
        if file.metadata().is_ok_and(|meta| meta.len() > 0) {
            self.small.push(file);
        }
        if self.small.len() >= MOST_FILES {
            self.flush_small();
        }
    }

    fn flush_small(&mut self) {
        self.bytes = 0;
        self.small.drain(..).for_each(|file| flush(&file));
    }
}

/// Waits until the data is written; its sizes and names follow with the sync at the end. What cannot be written is
/// found then, too.
fn flush(file: &File) {
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: a system call on numbers, with a descriptor that lives through it.
    let _ = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, all) };
}

/// Gives this process the idle I/O class, if the disk's scheduler supports it (BFQ).
pub fn stay_behind() {
    /// ioprio_set(2): a process.
    const WHO_PROCESS: libc::c_int = 1;
    /// Class 3, idle, in the upper bits.
    const IDLE: libc::c_int = 3 << 13;
    // SAFETY: a system call on numbers.
    let done = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, IDLE) };
    if done != 0 {
        log::debug!("disk priority stays as it is: {}", io::Error::last_os_error());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn descriptors_are_bounded_and_content_stays() {
        let temp = tempfile::tempdir().unwrap();
        let mut writeback = Writeback::default();
        for n in 0..1000 {
            let mut file = File::create(temp.path().join(n.to_string())).unwrap();
            file.write_all(b"text").unwrap();
            writeback.wrote(&file, 4);
            writeback.finished(file);
            assert!(writeback.small.len() < MOST_FILES);
        }
        let mut file = File::create(temp.path().join("large")).unwrap();
        for _ in 0..200 {
            file.write_all(&[7; 65536]).unwrap();
            writeback.wrote(&file, 65536);
            assert!(writeback.bytes < STEP);
        }
        assert_eq!(std::fs::read(temp.path().join("large")).unwrap(), [7; 65536 * 200]);
        assert_eq!(std::fs::read(temp.path().join("999")).unwrap(), b"text");
    }
}
