//! What a start of the daemon is to do, by what stands in the state. Knows no files and no processes.

use crate::versions::{State, Subject};

/// So often the daemon may be started within one trial: once, and twice more after it ended by itself.
pub const STARTS: u32 = 3;

/// What a start does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// No trial: the version in force.
    Plain,
    /// One more start of what is on trial.
    OnTrial,
    /// What is on trial has failed: the state is what it was before, and this is why.
    Back { subject: Subject, reason: String },
}

/// Decides, and changes the state accordingly. `boot_id` is this boot's.
pub fn decide(state: &mut State, boot_id: &str) -> Start {
    let Some(trial) = &mut state.trial else { return Start::Plain };
    let reason = if trial.boot_id != boot_id {
        // Power goes when it goes: what was not proved by then may be the cause.
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
