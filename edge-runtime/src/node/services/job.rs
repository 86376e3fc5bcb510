//! Decides what the next run of `nft` is for. Pure.

use super::Phase;

/// Purpose of the next run of `nft`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// No tables exist or are needed.
    Nothing,
    /// Delete the tables.
    Remove,
    /// Find out whether the kernel holds the desired state.
    Look,
    /// Write changes, or delete emptied rules.
    Update,
    /// Find the Services because of which the kernel refuses.
    Isolate,
    /// Replace the tables.
    Replace,
}

impl Job {
    /// `serves`: this node serves some Service. `is_there`: the tables exist.
    pub(super) fn next(phase: Phase, serves: bool, is_there: bool, failures: u32) -> Self {
        if !serves {
            let clean = phase == Phase::Known && !is_there;
            return if clean { Self::Nothing } else { Self::Remove };
        }
        match phase {
            Phase::Unknown => Self::Look,
            Phase::Known if is_there => Self::Update,
            // Both the change and the complete state were refused.
            Phase::Whole | Phase::Known if failures > 1 => Self::Isolate,
            Phase::Whole | Phase::Known => Self::Replace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_deleted_only_if_they_may_exist() {
        for failures in [0, 9] {
            for phase in [Phase::Unknown, Phase::Whole, Phase::Known] {
                assert_eq!(Job::next(phase, false, true, failures), Job::Remove, "{phase:?}");
            }
            assert_eq!(Job::next(Phase::Unknown, false, false, failures), Job::Remove, "of an earlier daemon");
            assert_eq!(Job::next(Phase::Whole, false, false, failures), Job::Remove);
            assert_eq!(Job::next(Phase::Known, false, false, failures), Job::Nothing);
        }
    }

    #[test]
    fn refused_change_is_followed_by_all_rules_and_then_a_search() {
        for (failures, next) in [(0, Job::Replace), (1, Job::Replace), (2, Job::Isolate), (3, Job::Isolate)] {
            for is_there in [true, false] {
                assert_eq!(Job::next(Phase::Whole, true, is_there, failures), next, "{failures} failures");
            }
            assert_eq!(Job::next(Phase::Known, true, false, failures), next, "{failures} failures");
            assert_eq!(Job::next(Phase::Known, true, true, failures), Job::Update, "a portion was taken");
        }
    }

    #[test]
    fn daemon_that_starts_looks_before_it_writes() {
        for (is_there, failures) in [(false, 0), (true, 0), (true, 9)] {
            assert_eq!(Job::next(Phase::Unknown, true, is_there, failures), Job::Look);
        }
    }
}
