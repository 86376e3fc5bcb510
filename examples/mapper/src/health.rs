//! Whether a device answers: decided by several rounds, so that one lost answer does not count as an outage. Pure.

use std::time::Duration;

/// Rounds without an answer before a device is offline.
const LOST: u32 = 3;
/// Rounds with one before it is online again.
const FOUND: u32 = 2;
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_AT_MOST: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Online,
    Offline,
}

impl State {
    /// Name in a DeviceStatus.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Offline => "offline",
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Health {
    /// `None` until it is known.
    state: Option<State>,
    lost: u32,
    found: u32,
}

impl Health {
    #[must_use]
    pub const fn state(&self) -> Option<State> {
        self.state
    }

    /// A round is over.
    pub fn round(&mut self, answered: bool) {
        if answered {
            (self.lost, self.found) = (0, self.found.saturating_add(1));
            if self.state.is_none() || self.found >= FOUND {
                self.state = Some(State::Online);
            }
        } else {
            (self.lost, self.found) = (self.lost.saturating_add(1), 0);
            if self.lost >= LOST {
                self.state = Some(State::Offline);
            }
        }
    }

    /// Minimum delay before the next round: a silent device blocks a bus that it shares with others.
    #[must_use]
    pub fn pause(&self) -> Duration {
        match self.lost.checked_sub(LOST) {
            None => Duration::ZERO,
            Some(more) => PAUSE.saturating_mul(1 << more.min(5)).min(PAUSE_AT_MOST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_answers_do_not_change_the_state() {
        let mut health = Health::default();
        assert_eq!(health.state(), None);
        let mut states = Vec::new();
        for answered in [true, false, false, true, false, false, false, true, false, true, true] {
            health.round(answered);
            states.push(health.state() == Some(State::Online));
        }
        assert_eq!(states, [true, true, true, true, true, true, false, false, false, false, true]);
        let mut never = Health::default();
        (0..2).for_each(|_| never.round(false));
        assert_eq!(never.state(), None);
        never.round(false);
        assert_eq!(never.state(), Some(State::Offline));
    }

    #[test]
    fn silent_device_backs_off() {
        let mut health = Health::default();
        let mut pauses = Vec::new();
        for _ in 0..10 {
            health.round(false);
            pauses.push(health.pause().as_secs());
        }
        assert_eq!(pauses, [0, 0, 1, 2, 4, 8, 16, 30, 30, 30]);
        health.round(true);
        assert_eq!(health.pause(), Duration::ZERO);
    }
}
