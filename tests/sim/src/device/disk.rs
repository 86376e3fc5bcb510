//! The disk of a device: full, copied, restored, and what a power cut destroys.

use std::time::Duration;

use super::Device;

impl Device {
    /// A power cut: data that was not synced is lost, and nothing runs.
    pub fn power_cut(&mut self, now: Duration) {
        self.crash(now);
        if self.synced {
            self.put_back("synced");
        }
        self.reboot(now);
    }

    pub(super) fn reboot(&mut self, now: Duration) {
        self.boot += 1;
        self.booted = now;
        self.runtime.clear();
        self.known.clear();
        self.crash_helper();
    }

    /// Copies the disk, as an administrator may.
    pub fn take_image(&mut self) {
        if self.store.is_some() {
            self.copy_to("image");
            self.image = true;
        }
    }

    /// Restores that copy: all later changes are lost.
    pub fn restore_image(&mut self, now: Duration) -> bool {
        if !self.image {
            return false;
        }
        self.crash(now);
        self.put_back("image");
        self.reboot(now);
        self.copy_to("synced");
        self.removed.clear();
        self.newest.clear();
        true
    }

    /// Reinstalls the device.
    pub fn reinstall(&mut self, now: Duration) {
        self.crash(now);
        for end in ["", "-wal", "-shm"] {
            for name in ["store", "synced"] {
                let _ = std::fs::remove_file(self.file(&format!("{name}{end}")));
            }
        }
        self.reboot(now);
        self.removed.clear();
        self.newest.clear();
    }

    /// Makes the disk full, or writable again.
    pub fn disk_full(&mut self, full: bool) {
        if let Some(store) = &self.store {
            store.limit(full).expect("a pragma");
        }
    }

    pub(super) fn copy_to(&self, name: &str) {
        for end in ["", "-wal"] {
            let to = self.file(&format!("{name}{end}"));
            let _ = std::fs::remove_file(&to);
            let _ = std::fs::copy(self.file(&format!("store{end}")), to);
        }
    }

    pub(super) fn put_back(&self, name: &str) {
        for end in ["", "-wal", "-shm"] {
            let to = self.file(&format!("store{end}"));
            let _ = std::fs::remove_file(&to);
            let _ = std::fs::copy(self.file(&format!("{name}{end}")), to);
        }
    }
}
