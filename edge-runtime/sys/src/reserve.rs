//! Reserve of disk space for the node itself. When pods have filled the disk, it is released, so that the store can be
//! written, layers be deleted and the shortage be reported.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use nix::fcntl::{FallocateFlags, fallocate};

/// Most that is kept, and the part of the disk on small ones.
const MOST: u64 = 4 << 20;
const PART: u64 = 64;
/// It is laid in again when this many times its size is free.
const AMPLE: u64 = 8;

/// The file that keeps the room.
#[derive(Clone, Debug)]
pub struct Reserve {
    file: PathBuf,
}

impl Reserve {
    pub fn new(file: PathBuf) -> Self {
        Self { file }
    }

    /// Gives up the reserve when less than it is `available`, and creates it again when there is plenty. Costs one
    /// check otherwise. `total`: size of the file system.
    ///
    /// # Errors
    /// The file cannot be created or deleted.
    pub fn tend(&self, available: u64, total: u64) -> io::Result<()> {
        let size = MOST.min(total / PART);
        let held = fs::metadata(&self.file).is_ok_and(|meta| meta.len() > 0);
        if held && available < size {
            return self.give_up();
        }
        if held || size < 4096 || available < size.saturating_mul(AMPLE) {
            return Ok(());
        }
        let file = File::create(&self.file)?;
        // `off_t` has 32 bits on armv7; `MOST` is far below either.
        let made = fallocate(&file, FallocateFlags::empty(), 0, size.try_into().unwrap_or(0));
        if let Err(error) = made {
            // Some file systems cannot; the node does without.
            log::debug!("{}: {error}", self.file.display());
            fs::remove_file(&self.file)?;
        }
        Ok(())
    }

    /// Gives the room up, whatever is available.
    ///
    /// # Errors
    /// The reserve does not exist, or the file cannot be deleted.
    pub fn give_up(&self) -> io::Result<()> {
        fs::remove_file(&self.file)?;
        log::warn!("the disk is full: giving up {} kept for the node itself", self.file.display());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_kept_given_up_and_kept_again() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("reserve");
        let reserve = Reserve::new(file.clone());
        let held = || fs::metadata(&file).map(|meta| meta.len()).unwrap_or(0);
        reserve.tend(1 << 30, 1 << 30).unwrap();
        let size = held();
        assert_eq!(size, MOST);
        reserve.tend(MOST, 1 << 30).unwrap();
        assert_eq!(held(), size);
        reserve.tend(MOST - 1, 1 << 30).unwrap();
        assert_eq!(held(), 0);
        reserve.tend(2 * MOST, 1 << 30).unwrap();
        assert_eq!(held(), 0, "not laid in before there is plenty");
        reserve.tend(1 << 30, 32 << 20).unwrap();
        assert_eq!(held(), (32 << 20) / PART, "small disks keep less");
    }
}
