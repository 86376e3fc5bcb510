//! Separates the machine's share from the server's: the delays of the machine itself beside other suites, and the size
//! of the program's text in the server's memory.

use std::fs::File;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::memory;
use sampan_tests::wait::patient;

const PAUSE: Duration = Duration::from_millis(20);
/// Maximum by which a slow machine extends a time limit. A machine that stalls for longer cannot show whether the
/// server does.
const ALLOWANCE: Duration = Duration::from_secs(5);

/// Measurements during some other work.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Seen {
    /// The longest wait of a thread without a server, for a processor and a durable write.
    pub(crate) longest: Duration,
    /// Maximum of the server's heap and of its program text, in KiB.
    heap: u64,
    text: u64,
}

impl Seen {
    /// Addition to a time limit: the machine's own delay, up to a maximum.
    pub(crate) fn allowance(&self) -> Duration {
        self.longest.min(patient(ALLOWANCE))
    }

    /// Growth of the heap since it had `before`, in KiB. The bridge unmaps its program when idle, and the pages that
    /// return are not growth. `peak` is the maximum of heap and program together (`VmHWM`), also between two
    /// measurements.
    pub(crate) fn growth(&self, before: u64, peak: u64) -> u64 {
        self.heap.max(peak.saturating_sub(self.text)).saturating_sub(before)
    }
}

/// The server's heap, in KiB.
pub(crate) fn heap(pid: u32) -> u64 {
    memory(pid, "RssAnon:")
}

/// Does the work and measures the server and the disk of `folder` until it is done.
pub(crate) fn beside<T>(pid: u32, folder: &Path, work: impl FnOnce() -> T) -> (T, Seen) {
    let stop = AtomicBool::new(false);
    let (done, seen) = std::thread::scope(|scope| {
        let looking = scope.spawn(|| look(pid, folder, &stop));
        // Catches a panic: otherwise the measuring thread would never end.
        let done = catch_unwind(AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        (done, looking.join().expect("it looks"))
    });
    match done {
        Ok(done) => (done, seen),
        Err(failure) => resume_unwind(failure),
    }
}

fn look(pid: u32, folder: &Path, stop: &AtomicBool) -> Seen {
    let (mut seen, file) = (Seen::default(), folder.join("written"));
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        std::thread::sleep(PAUSE);
        let written = File::create(&file).and_then(|mut file| {
            file.write_all(b"x")?;
            file.sync_all()
        });
        written.expect("the disk takes a file");
        seen.longest = seen.longest.max(start.elapsed().saturating_sub(PAUSE));
        seen.heap = seen.heap.max(heap(pid));
        seen.text = seen.text.max(memory(pid, "RssFile:"));
    }
    seen
}

#[test]
fn slow_machine_lengthens_a_limit_by_a_maximum() {
    let seen = |longest| Seen { longest, ..Seen::default() };
    assert_eq!(seen(PAUSE).allowance(), PAUSE);
    assert_eq!(seen(patient(ALLOWANCE) * 10).allowance(), patient(ALLOWANCE));
}

#[test]
fn program_that_comes_back_is_no_growth() {
    let seen = Seen { heap: 70, text: 50, ..Seen::default() };
    assert_eq!(seen.growth(60, 110), 10, "as it was seen");
    assert_eq!(seen.growth(60, 150), 40, "a peak between two looks");
    assert_eq!(seen.growth(90, 110), 0);
}
