//! Decides what a start of the daemon does, from the stored state. Does not know files or processes.

use serde::{Deserialize, Serialize};

use crate::versions::{State, Subject};

/// Maximum number of starts of the daemon within one trial: once, and twice more after it ended by itself.
pub const STARTS: u32 = 3;

/// Starts of one version in a row, each soon after the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Row {
    pub version: String,
    /// Time of the last start, in seconds since the machine's.
    pub at: u64,
    pub starts: u32,
}

/// Maximum time between two starts in a row, in seconds. The watchdog of the supervisor kills a daemon that hangs after
/// a minute, such as in a read of a bad block.
const SOON: u64 = 75;
/// Maximum number of starts in a row of an active version without a trial. After that the package's version is used: a
/// bad block in a program shows only when it crashes. A daemon that ends in order deletes the row: another version would
/// refuse a wrong configuration, too.
pub const ROW: u32 = 10;

impl Row {
    /// The row with one more start.
    #[must_use]
    pub fn with(self, version: &str, now: u64) -> Self {
        let goes_on = self.version == version && now.checked_sub(self.at).is_some_and(|pause| pause <= SOON);
        Self { version: version.to_owned(), at: now, starts: if goes_on { self.starts.saturating_add(1) } else { 1 } }
    }
}

/// Action of a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// No trial: the version in force.
    Plain,
    /// Another start during a trial.
    OnTrial,
    /// The trial has failed: the earlier state is restored, for this reason.
    Back { subject: Subject, reason: String },
}

/// Decides, and changes the state accordingly. `boot_id` is this boot's.
pub fn decide(state: &mut State, boot_id: &str) -> Start {
    let Some(trial) = &mut state.trial else { return Start::Plain };
    let reason = if trial.boot_id != boot_id {
        // The trial may have caused the reboot.
        "the machine was started anew during the trial".to_owned()
    } else if trial.starts >= STARTS {
        format!("the daemon has ended {STARTS} times during the trial")
    } else {
        trial.starts += 1;
        return Start::OnTrial;
    };
    let subject = trial.subject;
    state.end(false, &reason);
    Start::Back { subject, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::Trial;

    #[test]
    fn only_quick_starts_of_one_version_count() {
        let row = (0..5).fold(Row::default(), |row, turn| row.with("2-b", 100 + 62 * turn));
        assert_eq!(row.starts, 5);
        assert_eq!(row.clone().with("1-a", 349).starts, 1);
        assert_eq!(row.clone().with("2-b", 348 + SOON + 1).starts, 1);
        assert_eq!(row.with("2-b", 3).starts, 1, "another boot");
    }

    #[test]
    fn a_trial_has_three_starts_and_one_boot() {
        let mut state = State::default();
        assert_eq!(decide(&mut state, "b"), Start::Plain);
        let trial = Trial { boot_id: "b".into(), from: Some("1".into()), ..Trial::default() };
        let begun = State { current: Some("2".into()), trial: Some(trial), last: None };
        let mut state = begun.clone();
        for _ in 0..STARTS {
            assert_eq!(decide(&mut state, "b"), Start::OnTrial);
        }
        let Start::Back { reason, .. } = decide(&mut state, "b") else { panic!("{state:?}") };
        assert!(reason.contains("3 times"), "{reason}");
        assert_eq!((state.current.as_deref(), &state.trial), (Some("1"), &None));
        assert_eq!(decide(&mut state, "b"), Start::Plain);
        let mut state = begun;
        assert!(matches!(decide(&mut state, "another"), Start::Back { .. }));
        assert_eq!(state.current.as_deref(), Some("1"));
    }
}
