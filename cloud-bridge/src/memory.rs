//! Decides when the bridge returns memory to the kernel: after thousands of nodes have connected at once, because the
//! allocator keeps free memory between blocks in use, and when the process is idle. Does not know what the memory was
//! for.
#![allow(unsafe_code)]

use std::time::Duration;

/// Interval of checks.
const LOOK: Duration = Duration::from_secs(2);
/// Growth since the last trim of the heap that makes another one worthwhile; a trim cannot be interrupted (30 ms for a
/// gigabyte). In bytes, or as a fraction of the size after the last trim, whichever is more.
const GROWN: (u64, u64) = (8 << 20, 8);
/// Size from which a trim delays others noticeably (20 ms): it waits for an idle time, and for growth by a fourth.
const LARGE: u64 = 640 << 20;
/// Growth that makes a trim worthwhile when idle, [`REST`] checks after the last.
const GROWN_AT_REST: (u64, u64) = (4 << 20, 64);
/// Number of checks after which little growth is trimmed too: memory that is used each minute stays.
const REST: u32 = 30;
/// Number of checks after which the allocator is asked how much is free: it walks all free blocks, and others wait.
const ASK: u32 = 5;
/// Growth between two checks above which the process is not at rest.
const STEADY: u64 = 1 << 20;

/// Checks as long as the program runs.
pub async fn watch() {
    let mut size = Size::at_start();
    loop {
        tokio::time::sleep(LOOK).await;
        edge_protocol::compress::release();
        let Some(now) = resident() else { return };
        if size.is_worth_a_walk(now.all, || now.free()) {
            sampan_memory::trim();
            let after = resident().unwrap_or(now);
            let free = after.free();
            log::debug!(
                "memory: {} KiB, {} after a trim, of which {} are free",
                now.all >> 10,
                after.all >> 10,
                free >> 10
            );
            size.settled(after.all, free);
        }
    }
}

/// Memory of the process, in bytes.
#[derive(Debug, Default)]
struct Size {
    after_trim: u64,
    /// Free memory of the heap that the last trim could not return.
    free_after_trim: u64,
    last: u64,
    /// Number of checks since the last trim.
    looks: u32,
}

impl Size {
    /// The start runs much code only once, so the first idle time is used for a trim.
    fn at_start() -> Self {
        Self { looks: REST, ..Self::default() }
    }

    /// Whether the process has grown and grows no more, or has already grown by twice as much: later, the free memory
    /// would lie between blocks that stay in use. Or what was in use at the last trim is free now.
    fn is_worth_a_walk(&mut self, now: u64, free: impl FnOnce() -> u64) -> bool {
        let steady = now < self.last.saturating_add(STEADY);
        self.last = now;
        self.looks = self.looks.saturating_add(1);
        // Memory that was returned otherwise does not count as room to grow.
        self.after_trim = self.after_trim.min(now);
        let worth = |(least, part): (u64, u64)| least.max(self.after_trim / part);
        let grown = match steady {
            true if self.looks >= REST && now >= LARGE => self.after_trim / 4,
            true if self.looks >= REST => worth(GROWN_AT_REST),
            _ if now >= LARGE => return false,
            true => worth(GROWN),
            false => 2 * worth(GROWN),
        };
        if now > self.after_trim.saturating_add(grown) {
            return true;
        }
        let asks = steady && now < LARGE && self.looks.is_multiple_of(ASK);
        asks && free() > self.free_after_trim.saturating_add(worth(GROWN))
    }

    fn settled(&mut self, now: u64, free: u64) {
        (self.after_trim, self.free_after_trim, self.last, self.looks) = (now, free, now, 0);
    }
}

/// What this process has in memory, in bytes (proc(5), status).
#[derive(Debug, Clone, Copy)]
struct Resident {
    all: u64,
    anonymous: u64,
}

impl Resident {
    /// What the heap does not use.
    fn free(self) -> u64 {
        self.anonymous.saturating_sub(sampan_memory::heap_in_use())
    }
}

/// `None` without /proc.
fn resident() -> Option<Resident> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Resident { all: field("VmRSS:")?, anonymous: field("RssAnon:")? })
}

/// Blocks of 128 KiB and more always come from the kernel and return to it. glibc starts with that threshold, but
/// raises it to the size of each such block that is freed (mallopt(3), M_MMAP_THRESHOLD): after the first object of a
/// megabyte, all later ones would lie between small blocks that stay.
///
/// All threads but the main one share one arena (mallopt(3), M_ARENA_MAX): what one has freed is there for the others.
pub fn set_up() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no condition; a value that the allocator refuses changes nothing.
    unsafe {
        nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, 128 << 10);
        nix::libc::mallopt(nix::libc::M_ARENA_MAX, 2);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_is_given_back_once_it_has_grown_and_grows_no_more() {
        let mut size = Size::default();
        size.settled(100 * MIB, 0);
        assert!(!size.is_worth_a_walk(110 * MIB, || 0), "not worth it");
        assert!(!size.is_worth_a_walk(120 * MIB, || 0), "it grows");
        assert!(size.is_worth_a_walk(120 * MIB, || 0));
        size.settled(110 * MIB, 0);
        assert!(!size.is_worth_a_walk(110 * MIB, || 0), "what is in use is not asked for again and again");
        assert!(!size.is_worth_a_walk(90 * MIB, || 0));
        assert!(!size.is_worth_a_walk(103 * MIB, || 0));
        assert!(size.is_worth_a_walk(103 * MIB, || 0));
    }

    #[test]
    fn memory_that_was_in_use_at_the_last_trim_is_given_back_when_it_is_free() {
        let mut size = Size::default();
        let first = |size: &mut Size, all: u64, free: u64| {
            (1..=2 * ASK).find(|_| size.is_worth_a_walk(all * MIB, || free * MIB))
        };
        size.settled(60 * MIB, 2 * MIB);
        assert_eq!(first(&mut size, 60, 9), None, "not worth it");
        size.settled(60 * MIB, 2 * MIB);
        assert_eq!(first(&mut size, 60, 30), Some(ASK));
        size.settled(50 * MIB, 20 * MIB);
        assert_eq!(first(&mut size, 50, 20), None, "it lies between blocks in use");
    }

    #[test]
    fn allocator_is_rarely_asked_what_is_free() {
        let asked = |size: u64| {
            let (mut looks, count) = (Size::default(), Cell::new(0));
            looks.settled(size, 0);
            for _ in 0..4 * ASK {
                let free = || {
                    count.set(count.get() + 1);
                    0
                };
                assert!(!looks.is_worth_a_walk(size, free));
            }
            count.get()
        };
        assert_eq!((asked(100 * MIB), asked(LARGE)), (4, 0), "a walk delays others, most of all in a large process");
    }

    #[test]
    fn what_starting_needed_is_given_back_at_the_first_rest() {
        let mut size = Size::at_start();
        assert!(!size.is_worth_a_walk(15 * MIB, || 0), "it grows");
        assert!(size.is_worth_a_walk(15 * MIB, || 0));
    }

    #[test]
    fn little_is_given_back_at_rest_once_a_minute() {
        let mut size = Size::default();
        size.settled(10 * MIB, 0);
        let mut walks = Vec::new();
        for look in 0..100 {
            if size.is_worth_a_walk(15 * MIB, || 0) {
                size.settled(10 * MIB, 0);
                walks.push(look);
            }
        }
        assert_eq!(walks, [29, 59, 89]);
        size.settled(10 * MIB, 0);
        assert!((0..100).all(|_| !size.is_worth_a_walk(13 * MIB, || 0)), "not worth it");
    }

    #[test]
    fn large_process_waits_for_a_rest() {
        let mut size = Size::default();
        size.settled(600 * MIB, 0);
        let first = (0..100).find(|_| size.is_worth_a_walk(2_000 * MIB, || 0));
        assert_eq!(first, Some(29));
        size.settled(1_700 * MIB, 0);
        assert!((0..100).all(|_| !size.is_worth_a_walk(2_000 * MIB, || 0)), "not worth it");
    }

    #[test]
    fn memory_is_given_back_while_it_grows_without_end() {
        let mut size = Size::default();
        size.settled(100 * MIB, 0);
        let mut walks = 0;
        for now in (110..=600).step_by(10) {
            if size.is_worth_a_walk(now * MIB, || 0) {
                size.settled(now * MIB, 0);
                walks += 1;
            }
        }
        assert_eq!(walks, 7, "each time it has grown by more than a quarter");
    }

    #[test]
    fn what_lies_free_goes_back() {
        let blocks: Vec<Vec<u8>> = (0..20_000).map(|_| vec![1; 4_000]).collect();
        let kept: Vec<Vec<u8>> =
            blocks.into_iter().enumerate().filter(|(at, _)| at % 100 == 0).map(|(_, b)| b).collect();
        let before = resident().unwrap();
        let free = before.free();
        sampan_memory::trim();
        let after = resident().unwrap();
        let still_free = after.free();
        let returned = after.all + 32 * MIB < before.all && still_free + 32 * MIB < free;
        assert!(cfg!(not(target_env = "gnu")) || returned, "{before:?} {after:?} {free} {still_free}");
        drop(kept);
    }
}
