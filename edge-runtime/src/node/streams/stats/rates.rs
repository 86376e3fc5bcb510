//! CPU use as a rate: from two looks at counters that only grow. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Two looks closer than this tell nothing: the former answer is given again.
const TOO_SOON: Duration = Duration::from_millis(800);
/// Maximum age of a sample: an average over a longer time says nothing about the present.
const TOO_OLD: Duration = Duration::from_secs(60);

/// The last look, and the rates at that time. Keys name what is counted.
#[derive(Debug, Default)]
pub(in crate::node::streams) struct Rates {
    last: Option<(Instant, BTreeMap<String, u64>)>,
    rates: BTreeMap<String, u64>,
}

impl Rates {
    /// Takes nanoseconds of CPU time as counted at `now`. True when another look is needed, a moment later.
    pub(super) fn take(&mut self, now: Instant, counters: &BTreeMap<String, u64>) -> bool {
        let age = self.last.as_ref().map(|(at, _)| now.saturating_duration_since(*at));
        match (age, &self.last) {
            (Some(age), _) if age < TOO_SOON => return self.rates.is_empty(),
            (Some(age), Some((_, before))) if age <= TOO_OLD => {
                let rate = |(name, count): (&String, &u64)| {
                    let used = u128::from(count.checked_sub(*before.get(name)?)?);
                    let per_second = used * 1_000_000_000 / age.as_nanos().max(1);
                    Some((name.clone(), u64::try_from(per_second).ok()?))
                };
                self.rates = counters.iter().filter_map(rate).collect();
            }
            _ => self.rates.clear(),
        }
        self.last = Some((now, counters.clone()));
        self.rates.is_empty()
    }

    /// Nanoseconds of CPU time per second; `None` without an earlier value.
    pub(super) fn get(&self, name: &str) -> Option<u64> {
        self.rates.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(value: u64) -> BTreeMap<String, u64> {
        BTreeMap::from([("a".to_owned(), value)])
    }

    #[test]
    fn rates_come_from_looks_that_are_near_but_not_too_near() {
        let (mut rates, start) = (Rates::default(), Instant::now());
        assert!(rates.take(start, &counters(1_000)), "the first look needs another");
        assert!(!rates.take(start + Duration::from_secs(2), &counters(1_000_001_000)));
        assert_eq!(rates.get("a"), Some(500_000_000), "half a core");
        assert!(!rates.take(start + Duration::from_millis(2100), &counters(2_000_001_000)));
        assert_eq!(rates.get("a"), Some(500_000_000), "asked again at once");
        assert!(rates.take(start + Duration::from_secs(100), &counters(3_000_000_000)), "too old");
        assert!(!rates.take(start + Duration::from_secs(101), &counters(3_000_000_000)));
        assert_eq!(rates.get("a"), Some(0));
        // A container that was started again counts from zero.
        rates.take(start + Duration::from_secs(103), &counters(5));
        assert_eq!(rates.get("a"), None);
    }
}
