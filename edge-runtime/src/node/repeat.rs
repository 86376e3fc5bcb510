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
    /// Uids of pods that were told of before the list: the others are told to the API that sent it.
    pods: Vec<String>,
}

impl Repeat {
    /// The bridge has said so in its welcome.
    pub(super) fn welcomed(&mut self, within_ms: Option<u64>) {
        self.within = within_ms.map(|ms| Duration::from_millis(ms).min(LONGEST));
    }

    /// A list was complete, and these pods have been told of. `random` is any number.
    fn listed(&mut self, pods: Vec<String>, now: Mono, random: u32) {
        let share = f64::from(random) / f64::from(u32::MAX);
        self.due = self.within.filter(|_| !pods.is_empty()).map(|within| now.after(within.mul_f64(share)));
        self.pods = pods;
    }

    /// The pods to tell of again, if it is time; once.
    fn due(&mut self, now: Mono) -> Vec<String> {
        self.due.take_if(|due| *due <= now).map(|_| std::mem::take(&mut self.pods)).unwrap_or_default()
    }
}

impl Node {
    pub(super) fn repeat_soon(&mut self) {
        let told = self.pods.iter().filter(|(_, entry)| !entry.reported.is_null());
        let told = told.map(|(uid, _)| uid.clone()).collect();
        let now = self.mono();
        self.repeat.listed(told, now, random());
    }

    pub(super) fn repeat_statuses(&mut self, now: Mono) {
        for uid in self.repeat.due(now) {
            if let Some(entry) = self.pods.get_mut(&uid) {
                entry.reported = serde_json::Value::Null;
                self.pods.touch(&uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_told_once_within_the_time_that_the_bridge_gives() {
        let pods = || vec!["a".to_owned(), "b".to_owned()];
        let mut repeat = Repeat::default();
        repeat.listed(pods(), Mono(1_000), 0);
        assert!(repeat.due(Mono(u64::MAX)).is_empty(), "an older bridge asks for nothing");
        repeat.welcomed(Some(60_000));
        repeat.listed(pods(), Mono(1_000), u32::MAX);
        assert!(repeat.due(Mono(60_999)).is_empty());
        assert_eq!(repeat.due(Mono(61_000)), pods());
        assert!(repeat.due(Mono(61_001)).is_empty());
        repeat.listed(pods(), Mono(1_000), 0);
        assert_eq!(repeat.due(Mono(1_000)), pods(), "by chance at once");
        repeat.welcomed(Some(u64::MAX));
        repeat.listed(pods(), Mono(1_000), u32::MAX);
        assert_eq!(repeat.due(Mono(3_601_000)), pods(), "in an hour at the latest");
    }
}
