//! How soon requests of pods go on: pods that flood would fill the link only to be refused by the bridge, which takes 50
//! requests of a node in a second. No I/O, no clock: `now` is time since the start of the process.

use std::cell::Cell;
use std::time::Duration;

/// Longest wait for a turn. A request that is refused waits as long, or its sender would be back at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Maximum delay of turns for all by turns of pods' own, beyond the longest wait.
const DEBT: Duration = Duration::from_secs(1);

/// Turns at regular intervals, of which some may be taken at once.
#[derive(Debug)]
pub(crate) struct Rate {
    each: Duration,
    /// Intervals of turns that may be taken at once.
    burst: Duration,
    /// Time at which all turns so far have been earned.
    paid: Cell<Duration>,
}

impl Rate {
    /// Turns for all pods together, those of their own included: 40 in a second, 160 at once.
    pub(crate) const fn of_node() -> Self {
        Self::new(Duration::from_millis(25), Duration::from_secs(4))
    }

    /// Turns of one pod that it has even if others have taken all: 2 in a second, 20 at once. For leader election, and to find
    /// out what an API has.
    pub(crate) const fn of_pod() -> Self {
        Self::new(Duration::from_millis(500), Duration::from_secs(10))
    }

    const fn new(each: Duration, burst: Duration) -> Self {
        Self { each, burst, paid: Cell::new(Duration::ZERO) }
    }

    /// Takes a turn. Returns the time until it comes; `None`, and no turn, if that is longer than `patience`.
    fn take(&self, now: Duration, patience: Duration) -> Option<Duration> {
        let paid = self.paid.get().max(now).saturating_add(self.each);
        let wait = paid.saturating_sub(now.saturating_add(self.burst));
        (wait <= patience).then(|| {
            self.paid.set(paid);
            wait
        })
    }

    /// Counts a turn that does not wait for those before.
    fn count(&self, now: Duration) {
        let paid = self.paid.get().max(now).saturating_add(self.each);
        let most = [self.burst, PATIENCE, DEBT].into_iter().fold(now, Duration::saturating_add);
        self.paid.set(paid.min(most));
    }
}

/// Takes a turn of the pod's own, else one of those for all. Returns the time until it comes; `None` if that is too long.
pub(crate) fn turn(pod: &Rate, node: &Rate, now: Duration) -> Option<Duration> {
    let own = pod.take(now, Duration::ZERO);
    if own.is_some() {
        node.count(now);
        return own;
    }
    node.take(now, PATIENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(100);

    /// Requests that go on at once, wait, and are refused.
    fn sent(pod: &Rate, node: &Rate, now: Duration) -> (usize, usize, usize) {
        let all: Vec<_> = (0..1_000).map(|_| turn(pod, node, now)).collect();
        let at_once = all.iter().filter(|wait| **wait == Some(Duration::ZERO)).count();
        let refused = all.iter().filter(|wait| wait.is_none()).count();
        (at_once, all.len() - at_once - refused, refused)
    }

    #[test]
    fn flood_waits_and_is_refused() {
        let (pod, node) = (Rate::of_pod(), Rate::of_node());
        assert_eq!(sent(&pod, &node, START), (160, 40, 800));
        assert_eq!(turn(&pod, &node, START + Duration::from_millis(500)), Some(Duration::ZERO), "its own");
        let wait = turn(&pod, &node, START + Duration::from_millis(500)).expect("a turn");
        assert!(wait > Duration::from_millis(500) && wait <= PATIENCE, "behind those that wait: {wait:?}");
        assert_eq!(sent(&pod, &node, START + Duration::from_secs(60)), (160, 40, 800), "a refused one costs nothing");
    }

    #[test]
    fn pod_that_asks_rarely_does_not_wait_for_floods() {
        let (floods, rare, node) = (Rate::of_pod(), Rate::of_pod(), Rate::of_node());
        for second in 0..60 {
            let now = START + Duration::from_secs(second);
            assert!(sent(&floods, &node, now).2 > 0);
            assert_eq!([turn(&rare, &node, now), turn(&rare, &node, now)], [Some(Duration::ZERO); 2]);
        }
    }

    #[test]
    fn node_stays_below_the_limit_of_the_bridge() {
        // 50 in a second, 200 at once (cloud-bridge/src/bridge/api_proxy/rate.rs).
        for count in [1, 5, 20] {
            let (pods, node): (Vec<_>, _) = ((0..count).map(|_| Rate::of_pod()).collect(), Rate::of_node());
            for second in 0..60 {
                let passed = pods.iter().map(|pod| {
                    let (at_once, waiting, _) = sent(pod, &node, START + Duration::from_secs(second));
                    at_once + waiting
                });
                let passed = passed.sum::<usize>();
                let most = if second == 0 { 200 + 20 * (count - 1) } else { 50 };
                assert!(passed <= most, "{passed} of {count} pods in second {second}");
            }
        }
    }
}
