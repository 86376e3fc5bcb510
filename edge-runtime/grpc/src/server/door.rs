//! Rate limit of connections per process: all wait in one queue of the kernel, so a process that makes thousands in a
//! second is cut off at once, before anything is allocated for it. Otherwise the queue is full for others.

use std::time::Instant;

use sampan_sys::vec_map::VecMap;

/// A mapper of the framework makes one for each report, and does so for hundreds of devices in a row.
const BURST: u32 = 1_000;
const PER_SECOND: u32 = 500;
/// Processes that are remembered.
const PROCESSES: usize = 64;

/// What processes have left of their connections.
#[derive(Debug, Default)]
pub(super) struct Door(VecMap<i32, Left>);

#[derive(Debug)]
struct Left {
    count: u32,
    since: Instant,
}

impl Door {
    /// Whether to accept one more connection of this process. When too many processes are stored, the one whose last
    /// connection is oldest is dropped, and starts over.
    pub(super) fn opens(&mut self, pid: i32, now: Instant) -> bool {
        if self.0.len() >= PROCESSES && !self.0.contains_key(&pid) {
            let oldest = self.0.iter().min_by_key(|(_, left)| left.since).map(|(pid, _)| *pid);
            oldest.and_then(|pid| self.0.remove(&pid));
        }
        let left = self.0.get_or_insert_with(pid, || Left { count: BURST, since: now });
        let seconds = u32::try_from(now.saturating_duration_since(left.since).as_secs()).unwrap_or(u32::MAX);
        if seconds > 0 {
            *left =
                Left { count: left.count.saturating_add(seconds.saturating_mul(PER_SECOND)).min(BURST), since: now };
        }
        let opens = left.count > 0;
        left.count = left.count.saturating_sub(1);
        opens
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn connections_of_a_process_run_out_and_come_back() {
        let start = Instant::now();
        let mut door = Door::default();
        let taken = |door: &mut Door, pid, now| (0..10_000).filter(|_| door.opens(pid, now)).count();
        assert_eq!(taken(&mut door, 1, start), 1_000);
        assert_eq!(taken(&mut door, 2, start), 1_000, "another one has its own");
        assert_eq!(taken(&mut door, 1, start + Duration::from_secs(1)), 500);
        assert_eq!(taken(&mut door, 1, start + Duration::from_secs(3_600)), 1_000);
    }

    #[test]
    fn few_processes_are_remembered() {
        let start = Instant::now();
        let mut door = Door::default();
        for pid in 0..1_000 {
            assert!(door.opens(pid, start + Duration::from_secs(u64::from(pid.unsigned_abs()))));
        }
        assert_eq!(door.0.len(), PROCESSES);
        assert!(door.0.contains_key(&999) && !door.0.contains_key(&900));
    }
}
