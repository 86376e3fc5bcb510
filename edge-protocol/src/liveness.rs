//! Who must speak when, and when a silent peer counts as dead. The edge pings, the bridge answers: one small
//! frame each way per heartbeat keeps an idle link cheap and a dead one short-lived.

use std::time::Duration;

/// A peer is dead when nothing came for this many heartbeats.
const PATIENCE: u32 = 2;

#[derive(Debug)]
pub(crate) struct Liveness {
    heartbeat: Duration,
    heard: Duration,
    pinged: Duration,
    /// A ping has no answer yet.
    asking: bool,
    rtt: Option<Duration>,
    /// Round trip that the peer was told last.
    told: Option<Duration>,
}

impl Liveness {
    pub(crate) fn new(heartbeat: Duration, now: Duration) -> Self {
        Self { heartbeat, heard: now, pinged: now, asking: false, rtt: None, told: None }
    }

    pub(crate) fn set_heartbeat(&mut self, heartbeat: Duration) {
        self.heartbeat = heartbeat;
    }

    pub(crate) fn heard(&mut self, now: Duration) {
        self.heard = self.heard.max(now);
    }

    pub(crate) fn last_heard(&self) -> Duration {
        self.heard
    }

    /// How long the peer has been silent, if that is too long.
    pub(crate) fn dead(&self, now: Duration) -> Option<Duration> {
        (now >= self.deadline()).then(|| now.saturating_sub(self.heard))
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.heard + self.heartbeat * PATIENCE
    }

    /// Whether a ping is due; it then counts as sent.
    pub(crate) fn take_ping(&mut self, now: Duration) -> bool {
        let due = now >= self.next_ping();
        if due {
            self.pinged = now;
            self.asking = true;
        }
        due
    }

    /// The answer to a ping is here. An answer to an older one than the last makes the time too short; it is for
    /// people only.
    pub(crate) fn answered(&mut self, now: Duration) {
        if std::mem::take(&mut self.asking) {
            self.rtt = Some(now.saturating_sub(self.pinged));
        }
    }

    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Milliseconds of the round trip if they are news to the peer: a quarter more or less than it was told.
    pub(crate) fn rtt_news(&mut self) -> Option<u32> {
        let rtt = self.rtt?;
        let same = self.told.is_some_and(|told| rtt.abs_diff(told) <= told / 4 + Duration::from_millis(1));
        if same {
            return None;
        }
        self.told = Some(rtt);
        u32::try_from(rtt.as_millis()).ok()
    }

    pub(crate) fn next_ping(&self) -> Duration {
        self.pinged + self.heartbeat
    }
}
