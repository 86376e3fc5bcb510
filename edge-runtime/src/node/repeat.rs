//! After a complete list every pod's status is told once more. Such a list comes from a bridge that does not know this
//! node: its API may be that of a backup, which shows what has long been over, and what was told once is told no more.
//! A kubelet compares what the API shows every ten seconds (K8s pkg/kubelet/status, `needsReconcile`); here no status
//! travels down.

use std::time::Duration;

use crate::node::Node;
use crate::pod::clock::Mono;
use crate::sys::random::random;

/// Whatever a bridge says.
const LONGEST: Duration = Duration::from_secs(3600);

/// When to tell all statuses again.
#[derive(Debug, Default)]
pub(super) struct Repeat {
    /// The bridge knows how many nodes there are to share the time with.
    within: Option<Duration>,
    due: Option<Mono>,
}

impl Repeat {
    /// The bridge has said so in its welcome.
    pub(super) fn welcomed(&mut self, within_ms: Option<u64>) {
        self.within = within_ms.map(|ms| Duration::from_millis(ms).min(LONGEST));
    }

    /// A list was complete. `random` is any number.
    fn listed(&mut self, now: Mono, random: u32) {
        self.due = self.within.map(|within| now.after(within.mul_f64(f64::from(random) / f64::from(u32::MAX))));
    }

    /// Whether it is time; once.
    fn is_due(&mut self, now: Mono) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }
}

impl Node {
    pub(super) fn repeat_soon(&mut self) {
        let now = self.mono();
        self.repeat.listed(now, random());
    }

    pub(super) fn repeat_statuses(&mut self, now: Mono) {
        if !self.repeat.is_due(now) {
            return;
        }
        let uids: Vec<String> = self.pods.iter().map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            if let Some(entry) = self.pods.get_mut(&uid) {
                entry.reported = serde_json::Value::Null;
            }
            self.pods.touch(&uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_told_once_within_the_time_that_the_bridge_gives() {
        let mut repeat = Repeat::default();
        repeat.listed(Mono(1_000), 0);
        assert!(!repeat.is_due(Mono(u64::MAX)), "an older bridge asks for nothing");
        repeat.welcomed(Some(60_000));
        repeat.listed(Mono(1_000), u32::MAX);
        assert!(!repeat.is_due(Mono(60_999)));
        assert!(repeat.is_due(Mono(61_000)));
        assert!(!repeat.is_due(Mono(61_001)));
        repeat.listed(Mono(1_000), 0);
        assert!(repeat.is_due(Mono(1_000)), "by chance at once");
        repeat.welcomed(Some(u64::MAX));
        repeat.listed(Mono(1_000), u32::MAX);
        assert!(repeat.is_due(Mono(3_601_000)));
    }
}
