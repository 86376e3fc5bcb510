//! Services that the kernel refuses, whatever the reason: left out, so that the others are served, and tried again later.
//! Pure.

use std::time::Duration;

use crate::net::services::table::ServiceName;
use crate::pod::clock::Mono;
use crate::sys::vec_map::VecMap;

/// Until one is tried again: doubled each time, up to the second one.
const PAUSE: Duration = Duration::from_secs(60);
const PAUSE_AT_MOST: Duration = Duration::from_secs(3600);
/// Delay before a changed Service is tried again.
const CHANGED: Duration = Duration::from_secs(10);
/// Named in one event.
const NAMED: usize = 5;

#[derive(Debug, Default)]
pub(super) struct LeftOut(VecMap<ServiceName, Entry>);

#[derive(Debug)]
struct Entry {
    since: Mono,
    pause: Duration,
    /// It is left out; else it is tried at the moment.
    out: bool,
}

impl LeftOut {
    /// Records refused Services; returns the text of the warning.
    pub(super) fn add(&mut self, names: Vec<ServiceName>, now: Mono) -> String {
        let mut told: Vec<String> =
            names.iter().take(NAMED).map(|(namespace, name)| format!("{namespace}/{name}")).collect();
        if names.len() > NAMED {
            told.push(format!("{} more", names.len() - NAMED));
        }
        for name in names {
            let before = self.0.get(&name).map(|entry| entry.pause);
            let pause = before.map_or(PAUSE, |pause| (pause * 2).clamp(PAUSE, PAUSE_AT_MOST));
            self.0.insert(name, Entry { since: now, pause, out: true });
        }
        told.join(", ")
    }

    pub(super) fn has(&self, name: &ServiceName) -> bool {
        self.0.get(name).is_some_and(|entry| entry.out)
    }

    /// The Service has changed, or is gone.
    pub(super) fn changed(&mut self, name: &ServiceName, gone: bool) {
        if gone {
            self.0.remove(name);
        } else if let Some(entry) = self.0.get_mut(name) {
            entry.pause = entry.pause.min(CHANGED);
        }
    }

    /// Services to retry now.
    pub(super) fn due(&mut self, now: Mono) -> Vec<ServiceName> {
        let due = self.0.iter_mut().filter(|(_, entry)| entry.out && entry.since.after(entry.pause) <= now);
        due.map(|(name, entry)| {
            entry.out = false;
            name.clone()
        })
        .collect()
    }

    /// The kernel has taken those that were tried.
    pub(super) fn taken(&mut self) {
        self.0.retain(|_, entry| entry.out);
    }

    pub(super) fn wake(&self) -> Option<Mono> {
        self.0.values().filter(|entry| entry.out).map(|entry| entry.since.after(entry.pause)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_service_backs_off_until_it_changes() {
        let name = ("shop".to_owned(), "web".to_owned());
        let at = |second: u64| Mono::default().after(Duration::from_secs(second));
        let mut left = LeftOut::default();
        assert_eq!(left.add(vec![name.clone()], at(0)), "shop/web");
        assert!(left.has(&name) && left.due(at(59)).is_empty() && left.wake() == Some(at(60)));
        assert_eq!(left.due(at(60)), std::slice::from_ref(&name));
        assert!(!left.has(&name) && left.wake().is_none());
        left.add(vec![name.clone()], at(60));
        assert_eq!(left.wake(), Some(at(180)));
        left.changed(&name, false);
        assert_eq!(left.due(at(70)), std::slice::from_ref(&name));
        left.add(vec![name.clone()], at(70));
        assert_eq!(left.wake(), Some(at(130)), "no less often than the first time");
        left.due(at(130));
        left.taken();
        left.add(vec![name.clone()], at(200));
        assert_eq!(left.wake(), Some(at(260)), "that was another trouble");
        left.changed(&name, true);
        assert!(!left.has(&name));
        let many: Vec<ServiceName> = (0..9).map(|index| ("a".to_owned(), format!("s{index}"))).collect();
        assert_eq!(left.add(many, at(0)), "a/s0, a/s1, a/s2, a/s3, a/s4, 4 more");
    }

    #[test]
    fn refused_service_is_tried_every_hour_at_last() {
        let name = ("shop".to_owned(), "web".to_owned());
        let at = |second: u64| Mono::default().after(Duration::from_secs(second));
        let mut left = LeftOut::default();
        left.changed(&name, false);
        left.changed(&name, true);
        assert!(left.due(at(9)).is_empty() && left.wake().is_none(), "nothing was left out");
        let mut now = 7;
        for pause in [60, 120, 240, 480, 960, 1920, 3600, 3600] {
            left.add(vec![name.clone()], at(now));
            assert!(left.due(at(now + pause - 1)).is_empty(), "{pause} s");
            now += pause;
            assert_eq!((left.wake(), left.due(at(now))), (Some(at(now)), vec![name.clone()]), "{pause} s");
            assert!(left.due(at(now)).is_empty(), "once");
        }
        assert_eq!(left.add(Vec::new(), at(0)), "");
    }
}
