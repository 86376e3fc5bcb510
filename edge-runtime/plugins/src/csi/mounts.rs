//! What this process has mounted. A process that has just started knows nothing, and publishes again what is published:
//! CSI allows that, and the kubelet does it. Pure: no I/O, no clock.

use std::time::{Duration, Instant};

use sampan_sys::vec_map::VecMap;

use super::paths::Target;

/// Between two publications for `requiresRepublish`, about as the kubelet's `podsUpdate` interval has it.
const REPUBLISH: Duration = Duration::from_secs(90);

/// Published volumes by pod and volume.
#[derive(Debug, Default)]
pub(super) struct Mounts(VecMap<(String, String), Mounted>);

#[derive(Clone, Copy, Debug)]
struct Mounted {
    at: Instant,
    /// When the daemon was asked for another publication.
    asked: Instant,
    /// Hash of the request.
    hash: u64,
    republish: bool,
    /// Size to which the file system has grown.
    capacity: Option<i64>,
}

fn key(target: &Target) -> (String, String) {
    (target.pod.clone(), target.volume.clone())
}

impl Mounts {
    /// Whether the volume must be published now.
    pub(super) fn needs(&self, target: &Target, hash: u64, republish: bool, now: Instant) -> bool {
        self.0.get(&key(target)).is_none_or(|known| {
            republish && (known.hash != hash || now.saturating_duration_since(known.at) >= REPUBLISH)
        })
    }

    pub(super) fn published(&mut self, target: &Target, hash: u64, republish: bool, now: Instant) {
        let capacity = self.0.get(&key(target)).and_then(|known| known.capacity);
        self.0.insert(key(target), Mounted { at: now, asked: now, hash, republish, capacity });
    }

    /// Whether the file system is to grow to this size.
    pub(super) fn must_grow(&self, target: &Target, capacity: i64) -> bool {
        self.0.get(&key(target)).is_some_and(|known| known.capacity != Some(capacity))
    }

    pub(super) fn has_grown(&mut self, target: &Target, capacity: i64) {
        if let Some(known) = self.0.get_mut(&key(target)) {
            known.capacity = Some(capacity);
        }
    }

    pub(super) fn remove(&mut self, target: &Target) {
        self.0.remove(&key(target));
    }

    /// Whether any volume is published again and again.
    pub(super) fn has_republished(&self) -> bool {
        self.0.values().any(|known| known.republish)
    }

    /// Pods and volumes that must be published again, each once in an interval.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(String, String)> {
        let mut due = Vec::new();
        for (key, known) in self.0.iter_mut() {
            let since = known.at.max(known.asked);
            if known.republish && now.saturating_duration_since(since) >= REPUBLISH {
                known.asked = now;
                due.push(key.clone());
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(pod: &str) -> Target {
        Target::new(pod, "pv", false).expect("names")
    }

    #[test]
    fn volume_is_published_once_or_again_and_again() {
        let (mut mounts, start) = (Mounts::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let (once, again) = (target("once"), target("again"));
        assert!(mounts.needs(&once, 1, false, start) && mounts.needs(&again, 1, true, start));
        mounts.published(&once, 1, false, start);
        assert!(!mounts.has_republished());
        mounts.published(&again, 1, true, start);
        assert!(mounts.has_republished());
        assert!(!mounts.needs(&once, 2, false, after(1_000)), "other secrets are for drivers that want them");
        assert!(!mounts.needs(&again, 1, true, after(89)) && mounts.needs(&again, 1, true, after(90)));
        assert!(mounts.needs(&again, 2, true, after(1)), "with other secrets at once");
        assert!(mounts.due(after(89)).is_empty());
        let pod = ("again".to_owned(), "pv".to_owned());
        assert_eq!(mounts.due(after(90)), std::slice::from_ref(&pod));
        assert!(mounts.due(after(179)).is_empty(), "the daemon may not answer");
        assert_eq!(mounts.due(after(180)), [pod]);
        mounts.published(&again, 1, true, after(200));
        assert!(mounts.due(after(289)).is_empty());
        mounts.remove(&again);
        assert!(!mounts.has_republished() && mounts.due(after(1_000)).is_empty());
        assert!(mounts.needs(&again, 1, true, after(201)));
    }

    #[test]
    fn file_system_grows_once_for_each_size() {
        let (mut mounts, now, target) = (Mounts::default(), Instant::now(), target("p"));
        assert!(!mounts.must_grow(&target, 10), "it is not mounted");
        mounts.published(&target, 1, false, now);
        assert!(mounts.must_grow(&target, 10));
        mounts.has_grown(&target, 10);
        mounts.published(&target, 2, false, now);
        assert!(!mounts.must_grow(&target, 10) && mounts.must_grow(&target, 20));
    }
}
