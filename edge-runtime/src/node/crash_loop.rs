//! Isolates a pod whose turns crash the daemon. A panic ends the process, and the next process starts with the same
//! store, so one pod could keep all others from being managed. Before each turn the pod's uid is written below the run
//! folder. After three deaths the pod is left alone until the next boot, or until its object changes.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Deaths of the daemon in a pod's turn.
const DEATHS: u32 = 3;
/// Most bytes of a uid.
const UID_LIMIT: usize = 256;

#[derive(Default)]
pub(super) struct CrashLoop {
    /// Holds the uid of the pod whose turn it is, or zeros.
    turn: Option<File>,
    counts: PathBuf,
    /// Deaths of the daemon by pod uid.
    deaths: BTreeMap<String, u32>,
}

impl CrashLoop {
    /// Counts the death of the daemon before this one, if it was in a pod's turn.
    pub(super) fn open(run: &Path) -> Self {
        let (turn, counts) = (run.join("turn"), run.join("deaths"));
        let text = std::fs::read_to_string(&counts).unwrap_or_default();
        let mut deaths: BTreeMap<String, u32> = serde_json::from_str(&text).unwrap_or_default();
        let last = std::fs::read_to_string(&turn).unwrap_or_default();
        let last = last.trim_matches('\0');
        if !last.is_empty() {
            let count = deaths.entry(last.to_owned()).or_default();
            *count = count.saturating_add(1);
            log::error!("the last daemon died in a turn of pod {last}, {count} times by now");
        }
        let file = File::options().create(true).truncate(true).write(true).open(&turn);
        let crash_loop = Self { turn: file.ok(), counts, deaths };
        crash_loop.save();
        crash_loop
    }

    /// Begins the turn of a pod; false if it gets no turn.
    pub(super) fn begin(&self, uid: &str) -> bool {
        if self.skips(uid) {
            return false;
        }
        self.write(uid.as_bytes());
        true
    }

    /// Whether a pod gets no turn.
    pub(super) fn skips(&self, uid: &str) -> bool {
        self.deaths.get(uid).is_some_and(|count| *count >= DEATHS)
    }

    /// Ends the turn: the daemon survived it.
    pub(super) fn end(&mut self, uid: &str) {
        self.write(&[]);
        if self.deaths.remove(uid).is_some() {
            self.save();
        }
    }

    /// Its object is another by now: it gets one more try. Whether it had none.
    pub(super) fn changed(&mut self, uid: &str) -> bool {
        match self.deaths.get_mut(uid) {
            Some(count) if *count >= DEATHS => {
                *count = DEATHS - 1;
                self.save();
                true
            }
            _ => false,
        }
    }

    /// The pods that have no turns.
    pub(super) fn skipped(&self) -> Vec<String> {
        self.deaths.iter().filter(|(_, count)| **count >= DEATHS).map(|(uid, _)| uid.clone()).collect()
    }

    fn write(&self, uid: &[u8]) {
        let mut text = [0; UID_LIMIT];
        let length = uid.len().min(UID_LIMIT);
        text[..length].copy_from_slice(&uid[..length]);
        if let Some(turn) = &self.turn {
            let _ = turn.write_all_at(&text, 0);
        }
    }

    fn save(&self) {
        if let Ok(text) = serde_json::to_string(&self.deaths) {
            let _ = std::fs::write(&self.counts, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::exit_sync::ExitSync;
    use super::*;

    #[test]
    fn after_three_deaths_a_pod_has_no_turn_until_it_changes() {
        let run = tempfile::tempdir().unwrap();
        for _ in 0..DEATHS {
            let crash_loop = CrashLoop::open(run.path());
            assert!(crash_loop.begin("bad"), "each death is followed by another try");
        }
        let mut crash_loop = CrashLoop::open(run.path());
        assert!(!crash_loop.begin("bad") && crash_loop.begin("good"));
        assert!(crash_loop.skips("bad") && !crash_loop.skips("good"));
        crash_loop.end("good");
        assert_eq!(crash_loop.skipped(), ["bad"]);
        assert!(!crash_loop.changed("good") && crash_loop.changed("bad") && crash_loop.begin("bad"));
        drop(crash_loop);
        assert!(!CrashLoop::open(run.path()).begin("bad"), "once more was once too often");
    }

    #[test]
    fn exit_in_a_skipped_pod_stays_with_the_monitor() {
        let run = tempfile::tempdir().unwrap();
        std::fs::write(run.path().join("deaths"), r#"{"bad": 3}"#).unwrap();
        let (mut crash_loop, mut ends) = (CrashLoop::open(run.path()), ExitSync::default());
        // The exits that the monitor may forget after it.
        let turn = |crash_loop: &mut CrashLoop, ends: &mut ExitSync, uid: &str| -> Vec<String> {
            if !crash_loop.begin(uid) {
                return Vec::new();
            }
            crash_loop.end(uid);
            ends.turned(uid).into_iter().collect()
        };
        ends.told("good", "c0");
        assert_eq!(turn(&mut crash_loop, &mut ends, "good"), ["c0"]);
        // A monitor that still has it reports it again.
        ["c2", "c1", "c2"].iter().for_each(|id| ends.told("bad", id));
        assert_eq!(turn(&mut crash_loop, &mut ends, "bad"), [""; 0], "it is in no record");
        assert!(crash_loop.changed("bad"));
        assert_eq!(turn(&mut crash_loop, &mut ends, "bad"), ["c1", "c2"]);
        assert_eq!(turn(&mut crash_loop, &mut ends, "bad"), [""; 0]);
    }

    #[test]
    fn rare_kills_of_the_daemon_skip_no_pod() {
        let run = tempfile::tempdir().unwrap();
        for _ in 0..10 {
            let mut crash_loop = CrashLoop::open(run.path());
            assert!(crash_loop.begin("a"));
            crash_loop.end("a");
            assert!(crash_loop.begin("a"));
        }
        let crash_loop = CrashLoop::open(run.path());
        assert_eq!(crash_loop.skipped(), [""; 0]);
    }

    #[test]
    fn unreadable_counts_skip_no_pod() {
        for text in ["", "{", "[]", r#"{"a": -1}"#] {
            let run = tempfile::tempdir().unwrap();
            std::fs::write(run.path().join("deaths"), text).unwrap();
            let crash_loop = CrashLoop::open(run.path());
            assert!(crash_loop.skipped().is_empty() && crash_loop.begin("a"), "{text}");
        }
        let crash_loop = CrashLoop::open(Path::new("/nowhere"));
        assert!(crash_loop.begin("a"), "nor does a folder that cannot be written");
    }

    #[test]
    fn death_outside_of_a_turn_counts_for_no_pod() {
        let run = tempfile::tempdir().unwrap();
        for _ in 0..DEATHS {
            let mut crash_loop = CrashLoop::open(run.path());
            assert!(crash_loop.begin("a"));
            crash_loop.end("a");
        }
        assert!(CrashLoop::open(run.path()).deaths.is_empty());
    }

    #[test]
    fn one_pod_fewer_deaths_than_the_limit_keeps_its_turns() {
        for (count, skips) in [(0, false), (DEATHS - 1, false), (DEATHS, true), (u32::MAX, true)] {
            let run = tempfile::tempdir().unwrap();
            std::fs::write(run.path().join("deaths"), format!(r#"{{"a": {count}}}"#)).unwrap();
            let mut crash_loop = CrashLoop::open(run.path());
            assert_eq!(crash_loop.skips("a"), skips, "{count}");
            assert_eq!(crash_loop.changed("a"), skips, "{count}");
            assert!(crash_loop.begin("a") && !crash_loop.changed("a"), "{count}");
        }
    }
}
