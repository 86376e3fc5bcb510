//! Heartbeats: which side must send when, and when a silent peer counts as dead. The edge pings, the bridge answers:
//! one small frame each way per heartbeat keeps an idle link cheap and detects a dead one soon.

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
    /// Last round trip sent to the peer.
    told: Option<Duration>,
    /// The peer was asked for a sign of life and is to give it by then.
    suspect: Option<Duration>,
}

impl Liveness {
    pub(crate) fn new(heartbeat: Duration, now: Duration) -> Self {
        Self { heartbeat, heard: now, pinged: now, asking: false, rtt: None, told: None, suspect: None }
    }

    pub(crate) fn set_heartbeat(&mut self, heartbeat: Duration) {
        self.heartbeat = heartbeat;
    }

    pub(crate) fn heard(&mut self, now: Duration) {
        self.heard = self.heard.max(now);
        self.suspect = None;
    }

    /// Sends a ping now, and treats silence as death already after `patience`. The first of several doubts counts.
    pub(crate) fn doubt(&mut self, now: Duration, patience: Duration) {
        self.pinged = now;
        self.asking = true;
        self.suspect.get_or_insert(now + patience);
    }

    pub(crate) fn last_heard(&self) -> Duration {
        self.heard
    }

    /// How long the peer has been silent, if that is too long.
    pub(crate) fn dead(&self, now: Duration) -> Option<Duration> {
        (now >= self.deadline()).then(|| now.saturating_sub(self.heard))
    }

    pub(crate) fn deadline(&self) -> Duration {
        let regular = self.heard + self.heartbeat * PATIENCE;
        self.suspect.map_or(regular, |at| at.min(regular))
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

    /// Returns the round trip in milliseconds if it differs from the last sent one by more than a quarter.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn g13_two_silent_heartbeats_are_a_death() {
        let mut life = Liveness::new(s(15), s(0));
        assert!(!life.take_ping(s(14)));
        assert!(life.take_ping(s(15)));
        assert_eq!(life.dead(s(29)), None);
        life.heard(s(29));
        assert_eq!(life.dead(s(58)), None);
        assert_eq!(life.dead(s(59)), Some(s(30)));
    }

    #[test]
    fn g13_a_doubt_is_settled_sooner() {
        let mut life = Liveness::new(s(15), s(0));
        life.doubt(s(5), s(3));
        life.doubt(s(7), s(3));
        assert_eq!(life.dead(s(7)), None);
        assert_eq!(life.dead(s(8)), Some(s(8)));
        life.heard(s(7));
        assert_eq!(life.deadline(), s(37), "any word ends it");
        life.doubt(s(36), s(3));
        assert_eq!(life.deadline(), s(37), "it never prolongs a life");
    }
}
