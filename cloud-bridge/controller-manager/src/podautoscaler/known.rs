//! The known autoscalers, and which of them is evaluated next. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::key::ObjectKey;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;

use super::memory::Memory;
use crate::rate::Rate;

/// Time that one evaluation takes of a namespace in the long run, and number of evaluations that it may have at once.
/// One with fifty metrics and a hundred pods takes 7 ms of the thread. 150 autoscalers of a namespace keep the period of
/// Kubernetes, 15 s.
const EVALUATIONS: (Duration, u32) = (Duration::from_millis(100), 10);

/// State of an autoscaler.
pub(crate) struct Known {
    pub(crate) object: Arc<HorizontalPodAutoscaler>,
    pub(crate) memory: Memory,
    /// When it is looked at next; never while it is.
    pub(crate) due: Option<Duration>,
    /// Whether the list that is being read has named it.
    pub(crate) listed: bool,
}

/// The rate of evaluations.
pub(crate) fn rate() -> Rate {
    Rate::new(EVALUATIONS.0, EVALUATIONS.1)
}

/// The autoscaler that is evaluated next, and when: the one that has waited longest of those whose namespace may.
pub(crate) fn next<'a>(
    known: &'a BTreeMap<ObjectKey, Known>,
    rate: &Rate,
    now: Duration,
) -> Option<(Duration, &'a ObjectKey)> {
    // Keys are sorted by namespace.
    let mut last: Option<(&str, Duration)> = None;
    let waiting = known.iter().filter_map(|(key, known)| {
        let due = known.due?;
        let until = match last {
            Some((namespace, until)) if namespace == key.namespace => until,
            _ => rate.until(&key.namespace, now).unwrap_or_default(),
        };
        last = Some((&key.namespace, until));
        Some((due.max(until), due, key))
    });
    waiting.min().map(|(at, _, key)| (at, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_with_many_autoscalers_waits_alone() {
        let second = Duration::from_secs(1);
        let key = |namespace: &str, name: usize| ObjectKey { namespace: namespace.to_owned(), name: name.to_string() };
        let of = |due| Known { object: Arc::default(), memory: Memory::default(), due, listed: true };
        let mut known: BTreeMap<ObjectKey, Known> = (0..30).map(|at| (key("busy", at), of(Some(second)))).collect();
        let mut rate = rate();
        let mut evaluate = |known: &mut BTreeMap<ObjectKey, Known>, now: Duration| {
            let (at, key) = next(known, &rate, now).map(|(at, key)| (at, key.clone()))?;
            if at <= now {
                rate.spend(&key.namespace, 1, now);
                known.get_mut(&key)?.due = None;
            }
            Some((at, key.namespace))
        };
        for _ in 0..EVALUATIONS.1 {
            assert_eq!(evaluate(&mut known, second), Some((second, "busy".to_owned())));
        }
        let _last_at_once = evaluate(&mut known, second);
        let (later, _) = evaluate(&mut known, second).unwrap();
        assert_eq!(later, second + EVALUATIONS.0);
        // One that became due later, of a namespace without debt, is first.
        let between = second + EVALUATIONS.0 / 2;
        known.insert(key("other", 0), of(Some(between)));
        assert_eq!(evaluate(&mut known, between), Some((between, "other".to_owned())));
        assert_eq!(evaluate(&mut known, later), Some((second, "busy".to_owned())));
        assert_eq!(next(&BTreeMap::new(), &self::rate(), later), None);
    }
}
