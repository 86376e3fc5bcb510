//! After a complete list every pod's status is told once more. Such a list comes from a bridge that does not know this
//! node: its API may be that of a backup, which shows what has long been over, and what was told once is told no more.
//! A kubelet compares what the API shows every ten seconds (K8s pkg/kubelet/status, `needsReconcile`); here no status
//! travels down.

use std::time::Duration;

use crate::node::Node;
use crate::pod::clock::Mono;
use crate::sys::random::random;

/// Ten thousand nodes get such lists when their bridge has been restarted.
const SPREAD: Duration = Duration::from_secs(60);

/// When to tell all statuses again.
#[derive(Debug, Default)]
pub(super) struct Repeat {
    due: Option<Mono>,
}

impl Repeat {
    /// A list was complete. `random` is any number.
    fn listed(&mut self, now: Mono, random: u32) {
        let wait = SPREAD.mul_f64(f64::from(random) / f64::from(u32::MAX));
        self.due = Some(now.after(wait));
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
    fn all_is_told_once_within_a_minute_of_a_complete_list() {
        let mut repeat = Repeat::default();
        assert!(!repeat.is_due(Mono(u64::MAX)));
        repeat.listed(Mono(1_000), u32::MAX);
        assert!(!repeat.is_due(Mono(60_999)));
        assert!(repeat.is_due(Mono(61_000)));
        assert!(!repeat.is_due(Mono(61_001)));
        repeat.listed(Mono(1_000), 0);
        assert!(repeat.is_due(Mono(1_000)), "by chance at once");
    }
}
