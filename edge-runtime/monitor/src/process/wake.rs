//! How long the loop sleeps: some things have no event, and are looked at again and again.

use std::time::{Duration, Instant};

use nix::sys::epoll::EpollTimeout;

use super::container::{Parent, State};
use super::{CALM, Monitor};

/// How long exits are collected for one report: the containers of a pod end together.
const GATHER: Duration = Duration::from_millis(3);

/// Interval of looks at what ends within moments, and at what may take long.
const SOON: Duration = Duration::from_millis(10);
const NOW_AND_THEN: Duration = Duration::from_millis(250);

/// What the loop waits for without an event.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    /// Exits are collected for a report.
    gathers: bool,
    /// A start of a former monitor, or the end of a container of it.
    soon: bool,
    /// A process without pidfd, or a client that does not read.
    now_and_then: bool,
    /// Unread output, or memory to give back.
    calm: bool,
    /// Times of known moments.
    deadlines: [Option<Duration>; 2],
}

impl Waits {
    /// How long the loop may sleep; `None` until the next event.
    fn longest(&self) -> Option<Duration> {
        if self.gathers {
            return Some(GATHER);
        }
        let looks = [(self.soon, SOON), (self.now_and_then, NOW_AND_THEN), (self.calm, CALM)];
        let look = looks.into_iter().find_map(|(waits, look)| waits.then_some(look));
        let next = self.deadlines.into_iter().chain([look]).flatten().min()?;
        // Rounded up: a look that is too early by less than a millisecond would be repeated in a tight loop.
        Some(next.saturating_add(Duration::from_millis(1)))
    }
}

impl Monitor {
    /// What cannot be waited for is looked at here; returns when to look again.
    pub(super) fn tick(&mut self) -> EpollTimeout {
        self.look_at_inherited_starts();
        self.look_at_adopted();
        let held_up = self.look_at_held_up();
        if self.untold_since.is_some_and(|since| since.elapsed() >= GATHER) {
            self.tell_exits();
        }
        let unread = self.look_at_unread();
        let (log_trouble, jobs) = (self.look_at_logs(), self.look_at_jobs());
        let any = |is: fn(&State) -> bool| self.containers.values().any(|container| is(&container.state));
        let soon = any(|state| match state {
            State::Starting { runtime_pid: None, .. } => true,
            State::Running(running) => matches!(&running.parent, Parent::Other { ended: Some(_), .. }),
            _ => false,
        });
        let unwatched = any(
            |state| matches!(state, State::Running(running) if matches!(&running.parent, Parent::Other { pidfd: None, .. })),
        );
        if self.trim_at.is_some_and(|at| at <= Instant::now()) {
            self.trim_at = None;
            sampan_memory::trim();
        }
        let waits = Waits {
            gathers: self.untold_since.is_some(),
            soon,
            now_and_then: unwatched || held_up,
            calm: unread || self.trim_at.is_some(),
            deadlines: [log_trouble, jobs],
        };
        let timeout = waits.longest().map(|wait| EpollTimeout::try_from(wait).unwrap_or(EpollTimeout::MAX));
        timeout.unwrap_or(EpollTimeout::NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_sleeps_until_the_first_thing_to_look_at() {
        let millis = |waits: Waits| waits.longest().map(|wait| wait.as_millis());
        let nothing = Waits::default();
        assert_eq!(millis(nothing), None, "until an event");
        let calm = Waits { calm: true, ..nothing };
        let slow = Waits { now_and_then: true, ..calm };
        let soon = Waits { soon: true, ..slow };
        assert_eq!([calm, slow, soon].map(millis), [Some(5_001), Some(251), Some(11)]);
        assert_eq!(millis(Waits { gathers: true, ..soon }), Some(GATHER.as_millis()), "the report is due");
        let due = |millis: u64| [None, Some(Duration::from_millis(millis))];
        assert_eq!(millis(Waits { deadlines: due(100), ..calm }), Some(101));
        assert_eq!(millis(Waits { deadlines: due(0), ..nothing }), Some(1), "never a tight loop");
        assert_eq!(millis(Waits { deadlines: due(9_000), ..soon }), Some(11));
    }
}
