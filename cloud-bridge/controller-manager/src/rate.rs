//! Rate of what the controllers do for one namespace: 20 ReplicaSets of a million pods, or 500 autoscalers of one
//! Deployment, must not keep the thread from other users. Pure: the caller passes the monotonic time.
//!
//! kube-controller-manager limits all its writes together (`--kube-api-qps`, 20, and `--kube-api-burst`, 30).

use std::collections::BTreeMap;
use std::time::Duration;

/// Number of namespaces above which those without debt are removed.
const KEPT: usize = 1000;

/// When the debt of each namespace is paid (generic cell rate algorithm, ITU-T I.371).
#[derive(Debug)]
pub(crate) struct Rate {
    /// Time that one piece of work takes of a namespace in the long run.
    each: Duration,
    /// Number of pieces that a namespace may do at once.
    burst: u32,
    paid: BTreeMap<String, Duration>,
}

impl Rate {
    pub(crate) fn new(each: Duration, burst: u32) -> Self {
        Self { each, burst, paid: BTreeMap::new() }
    }

    /// When this namespace may do more, if that is later than now.
    pub(crate) fn until(&self, namespace: &str, now: Duration) -> Option<Duration> {
        let due = self.paid.get(namespace)?.saturating_sub(self.each * self.burst);
        (due > now).then_some(due)
    }

    /// Counts work of a namespace.
    pub(crate) fn spend(&mut self, namespace: &str, pieces: usize, now: Duration) {
        if pieces == 0 {
            return;
        }
        if self.paid.len() >= KEPT {
            self.paid.retain(|_, paid| *paid > now);
        }
        let cost = self.each.saturating_mul(u32::try_from(pieces).unwrap_or(u32::MAX));
        let paid = self.paid.entry(namespace.to_owned()).or_default();
        *paid = (*paid).max(now).saturating_add(cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: Duration = Duration::from_millis(20);

    #[test]
    fn namespace_with_much_work_waits_alone_and_less_and_less() {
        let (mut rate, second) = (Rate::new(EACH, 256), Duration::from_secs(1));
        rate.spend("busy", 256, second);
        assert_eq!(rate.until("busy", second), None, "that many at once");
        rate.spend("busy", 128, second);
        let until = rate.until("busy", second).unwrap();
        assert_eq!(until, second + EACH * 128);
        assert_eq!((rate.until("busy", until), rate.until("other", second)), (None, None));
        // At rest it gets all of it back.
        rate.spend("busy", 256, 60 * second);
        assert_eq!(rate.until("busy", 60 * second), None);
    }

    #[test]
    fn namespaces_without_debt_are_forgotten() {
        let mut rate = Rate::new(EACH, 256);
        (0..3 * KEPT).for_each(|index| rate.spend(&format!("n{index}"), 1, Duration::from_secs(index as u64)));
        assert!(rate.paid.len() <= KEPT, "{}", rate.paid.len());
    }
}
