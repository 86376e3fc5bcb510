//! Limits of an untrusted image, and the kernel's limits of the helper process that handles it.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, rlim_t, setrlimit};

/// Caps that hold for one image.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Entries of one layer.
    pub entries: u64,
    /// Bytes of one layer, unpacked.
    pub layer_bytes: u64,
    /// Bytes of one compressed blob.
    pub blob_bytes: u64,
    /// Bytes of an index, manifest or configuration.
    pub document_bytes: u64,
    /// Bytes of all layers of one image, packed or unpacked.
    pub image_bytes: u64,
    /// Layers of one image: overlayfs stacks at most 500, other runtimes 127.
    pub layers: usize,
    /// Most that a download may take of the link.
    pub bytes_per_second: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 1 << 20,
            layer_bytes: 16 << 30,
            blob_bytes: 8 << 30,
            document_bytes: 4 << 20,
            image_bytes: 64 << 30,
            layers: 127,
            bytes_per_second: None,
        }
    }
}

/// Bounds this process before it reads anything from outside: memory, file size, processor time, no core file. And puts
/// it behind everything else that runs here.
/// A limit that the process may not set stays as it was.
pub fn confine_process(limits: &Limits) {
    const CPU_SECONDS: u64 = 3600;
    crate::sys::writeback::stay_behind();
    confine_memory();
    set(Resource::RLIMIT_FSIZE, limits.layer_bytes);
    set(Resource::RLIMIT_CPU, CPU_SECONDS);
}

/// Bounds only this process's memory, without other limits: a caller waits for its result.
pub fn confine_memory() {
    set(Resource::RLIMIT_AS, memory_limit(crate::sys::host::memory_total()));
    set(Resource::RLIMIT_CORE, 0);
}

fn set(resource: Resource, value: u64) {
    let value = rlim_t::try_from(value).unwrap_or(RLIM_INFINITY);
    let done = getrlimit(resource).and_then(|(_, hard)| setrlimit(resource, value.min(hard), value.min(hard)));
    if let Err(error) = done {
        log::debug!("limit {resource:?} stays as it is: {error}");
    }
}

/// Address space of a helper on a machine with `total` bytes of memory: a quarter, since the kernel ends pods for what is
/// taken beyond. Room for the largest window that a zstd frame of the usual tools needs (8 MiB, 128 MiB with --ultra),
/// SQLite and TLS is always there; unused mappings count.
fn memory_limit(total: u64) -> u64 {
    (total / 4).clamp(160 << 20, 512 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_gets_a_quarter_of_the_boards_memory() {
        for (board, helper) in [(0, 160), (256, 160), (512, 160), (1024, 256), (1800, 450), (8192, 512)] {
            assert_eq!(memory_limit(board << 20), helper << 20, "{board} MiB");
        }
    }
}
