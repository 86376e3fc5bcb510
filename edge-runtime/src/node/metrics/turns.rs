//! Duration of the rounds of the node's loop.

use std::time::Duration;

use crate::clock::Clock;
use crate::counters;

/// A turn that takes longer is a stall.
const STALL: Duration = Duration::from_secs(1);

/// Records that one round of the loop took this long.
pub(in crate::node) fn turned(took: Duration) {
    counters::TURNS.one();
    counters::LONGEST_TURN.at_least(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    if took > STALL {
        counters::STALLS.one();
    }
    counters::LAST_TURN.set(Clock::mono().0);
}
