//! A link that is cut again and again: closed and refused the first time, silent the next, and so on in turn.

use std::sync::{PoisonError, Weak};
use std::time::Duration;

use super::{Faults, Shared};

/// Length and interval of the cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cuts {
    pub down: Duration,
    pub every: Duration,
}

impl Cuts {
    /// Parses `TEST_LINK_CUTS=5/30`: for 5 of every 30 seconds. `None` if it is not set.
    ///
    /// # Panics
    /// It is malformed.
    #[must_use]
    pub fn from_env() -> Option<Self> {
        let text = std::env::var("TEST_LINK_CUTS").ok()?;
        let seconds = |text: &str| text.parse().ok().map(Duration::from_secs_f64);
        let (down, every) = text.split_once('/').unwrap_or_default();
        match (seconds(down), seconds(every)) {
            (Some(down), Some(every)) if down < every => Some(Self { down, every }),
            _ => panic!("TEST_LINK_CUTS={text}: must be seconds down, a slash, seconds of a whole round, such as 5/30"),
        }
    }
}

pub(super) fn run(shared: &Weak<Shared>, cuts: Cuts) {
    for round in 0.. {
        std::thread::sleep(cuts.every - cuts.down);
        let Some(shared) = shared.upgrade() else { return };
        if shared.is_over() {
            return;
        }
        let _trouble = shared.calm.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *shared.faults();
        if round % 2 == 0 {
            shared.set(Faults { refuse: true, ..before });
            shared.cut();
        } else {
            shared.set(Faults { silent_up: true, silent_down: true, ..before });
        }
        std::thread::sleep(cuts.down);
        shared.set(before);
    }
}
