//! Observes the host beside thresholds: the time, file descriptors, the disk's reserve.

use std::time::Duration;

use jiff::Timestamp;

use super::context::Context;
use crate::paths::Paths;
use crate::pod::clock::Mono;
use crate::store::{Fact, StoreError};
use crate::sys::reserve::Reserve;
use crate::sys::{descriptors, host};

/// The clock mark: how far a clock that lost its battery may fall back.
const TIME_MARK: Duration = Duration::from_secs(3600);

#[derive(Default)]
pub(super) struct HostWatch {
    time_mark: Option<Mono>,
    /// Last time that the bridge sent, and when it arrived.
    true_time: Option<(Timestamp, Mono)>,
    short_of_descriptors: bool,
}

impl HostWatch {
    /// The bridge has sent its time. An older bridge does not, but its certificate is valid by this node's clock.
    pub(super) fn time_told(&mut self, cx: &Context, told: Option<Timestamp>) {
        self.true_time = Some((told.unwrap_or_else(|| cx.wall()), cx.mono()));
    }

    /// Stores the time now and then: the bridge's time, advanced by a timer. The node's own clock is not used: ten
    /// years ahead at boot, it would make every certificate look expired from then on.
    pub(super) fn mark_time(&mut self, cx: &mut Context, now: Mono) -> Result<(), StoreError> {
        let Some((told, at)) = self.true_time else { return Ok(()) };
        if self.time_mark.is_some_and(|due| now < due) {
            return Ok(());
        }
        let time = present(told, at, now).to_string();
        cx.store.write(|writer| writer.set_fact(Fact::TimeFloor, &time))?;
        self.time_mark = Some(now.after(TIME_MARK));
        Ok(())
    }

    /// Told once until there are enough again.
    pub(super) fn watch_descriptors(&mut self, cx: &mut Context) -> Result<(), StoreError> {
        let Some((open, limit)) = descriptors::used() else { return Ok(()) };
        let short = descriptors::are_short((open, limit));
        if short && !self.short_of_descriptors {
            let text = format!("{open} of {limit} file descriptors are open: raise the limit (LimitNOFILE)");
            log::error!("{text}");
            cx.node_event(true, "FileDescriptorsShort", &text)?;
        }
        self.short_of_descriptors = short;
        Ok(())
    }
}

/// The time now, after the bridge has said another one at that moment.
fn present(told: Timestamp, at: Mono, now: Mono) -> Timestamp {
    told.checked_add(now.since(at)).unwrap_or(told)
}

/// Keeps or gives up the room for the node itself.
pub(super) fn maintain(reserve: &Reserve, paths: &Paths) {
    let Some(space) = host::disk_space(&paths.state()) else { return };
    if let Err(error) = reserve.tend(space.available_bytes, space.total_bytes) {
        log::error!("{}: {error}", paths.reserve().display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_the_bridge_goes_on_by_a_timer() {
        let told: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let after = |ms| present(told, Mono(5_000), Mono(ms)).to_string();
        assert_eq!(after(5_000), "2026-01-01T00:00:00Z");
        assert_eq!(after(3_605_000), "2026-01-01T01:00:00Z");
        assert_eq!(after(0), "2026-01-01T00:00:00Z", "never back");
        assert_eq!(present(Timestamp::MAX, Mono(0), Mono(u64::MAX)), Timestamp::MAX);
    }
}
