//! State of an autoscaler between evaluations, as in Kubernetes only in memory: recommendations and scaling events. It
//! starts with the present number of replicas, so that a restart does not scale down at once. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use apimachinery::selector::LabelSelector;
use jiff::Timestamp;

use super::pods::Pod;

/// The longest window of a stabilization that an autoscaler may have.
const WINDOW_MAX: Duration = Duration::from_secs(3600);
/// The longest period of a policy.
const PERIOD_MAX: Duration = Duration::from_secs(1800);

/// A number with its time, as it passes.
pub(crate) type Dated = (i32, Duration);

/// State of one autoscaler.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Recommendations of the metrics, before any limit.
    pub(crate) recommendations: Vec<Dated>,
    /// Recent increases, in replicas.
    pub(crate) ups: Vec<Dated>,
    pub(crate) downs: Vec<Dated>,
    /// Which pods its target had.
    pub(crate) selector: Option<LabelSelector>,
    /// Times of pods that were ahead of the clock, by uid and time: when they were first seen.
    ahead: BTreeMap<(String, Timestamp), Timestamp>,
}

impl Memory {
    /// Removes what is older than every window.
    pub(crate) fn prune(&mut self, stabilization: Duration, now: Duration) {
        let window = WINDOW_MAX.max(stabilization);
        self.recommendations.retain(|(_, at)| now.saturating_sub(*at) <= window);
        for events in [&mut self.ups, &mut self.downs] {
            events.retain(|(_, at)| now.saturating_sub(*at) <= PERIOD_MAX);
        }
    }

    pub(crate) fn recommend(&mut self, replicas: i32, now: Duration) {
        self.recommendations.push((replicas, now));
    }

    /// Notes that the target was scaled.
    pub(crate) fn scaled(&mut self, from: i32, to: i32, now: Duration) {
        let events = if to > from { &mut self.ups } else { &mut self.downs };
        events.push((to.abs_diff(from).try_into().unwrap_or(i32::MAX), now));
    }

    /// Replaces times of pods that are ahead of the clock by the time when they were first seen: a board's clock may be
    /// wrong, and its pods would not count until then.
    pub(crate) fn believe(&mut self, pods: &mut [Pod], clock: Timestamp) {
        let known = std::mem::take(&mut self.ahead);
        for pod in pods {
            let uid = pod.uid().to_owned();
            let mut believable = |told: &mut Timestamp| {
                let seen = *told > clock || known.contains_key(&(uid.clone(), *told));
                if seen {
                    let key = (uid.clone(), *told);
                    let since = known.get(&key).copied().unwrap_or(clock).min(*told);
                    self.ahead.insert(key, since);
                    *told = since;
                }
            };
            pod.start.iter_mut().for_each(&mut believable);
            pod.ready.iter_mut().for_each(|(_, since)| believable(since));
        }
    }
}
