//! One pod as the page knows it: what is counted, and what a search shows. Pure.

use std::sync::Arc;

use super::facts::cut;

/// No reason of a pod is longer.
const REASON: usize = 64;

/// Phase of a pod (K8s `status.phase`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) enum Phase {
    Unknown,
    Pending,
    Running,
    Succeeded,
    Failed,
}

/// State of a pod by which it is filtered, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    NotReady,
    Failed,
    Terminating,
    Ready,
    Succeeded,
}

/// A pod as the watch delivers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) struct PodSeen<'a> {
    pub(in crate::page) namespace: &'a str,
    pub(in crate::page) name: &'a str,
    pub(in crate::page) node: &'a str,
    pub(in crate::page) phase: Phase,
    /// It is being deleted.
    pub(in crate::page) terminating: bool,
    pub(in crate::page) ready: bool,
    pub(in crate::page) restarts: u64,
    /// Seconds since 1970; 0 for not known.
    pub(in crate::page) created: i64,
    /// Why it is in this phase; may be empty.
    pub(in crate::page) reason: &'a str,
}

/// What of a pod is counted for its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// It has not ended.
    pub(super) wanted: bool,
    pub(super) ready: bool,
    pub(super) restarts: u64,
}

#[derive(Debug)]
pub(super) struct Pod {
    pub(super) node: Arc<str>,
    pub(super) reason: Box<str>,
    pub(super) created: i64,
    pub(super) counted: Counted,
    phase: Phase,
    terminating: bool,
}

impl Phase {
    pub(in crate::page) fn of(text: &str) -> Self {
        match text {
            "Pending" => Self::Pending,
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ => Self::Unknown,
        }
    }

    fn has_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

impl State {
    /// All states in their order.
    pub(super) const ALL: [Self; 5] = [Self::NotReady, Self::Failed, Self::Terminating, Self::Ready, Self::Succeeded];

    /// The word after `is:` in a filter.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::NotReady => "notready",
            Self::Failed => "failed",
            Self::Terminating => "terminating",
            Self::Ready => "ready",
            Self::Succeeded => "succeeded",
        }
    }

    pub(super) fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

impl PodSeen<'_> {
    pub(super) fn counted(&self) -> Counted {
        let wanted = !self.phase.has_ended();
        Counted { wanted, ready: self.ready && wanted, restarts: self.restarts }
    }
}

impl Pod {
    /// `node` is the name of its node.
    pub(super) fn new(seen: &PodSeen<'_>, node: Arc<str>) -> Self {
        let PodSeen { phase, terminating, created, .. } = *seen;
        Self { node, reason: cut(seen.reason, REASON).into(), created, counted: seen.counted(), phase, terminating }
    }

    /// Takes over what the watch says of it, unless it is on another node.
    pub(super) fn update(&mut self, seen: &PodSeen<'_>) {
        let reason = cut(seen.reason, REASON);
        if *self.reason != *reason {
            self.reason = reason.into();
        }
        (self.created, self.counted) = (seen.created, seen.counted());
        (self.phase, self.terminating) = (seen.phase, seen.terminating);
    }

    pub(super) fn state(&self) -> State {
        match self.phase {
            Phase::Failed => State::Failed,
            Phase::Succeeded => State::Succeeded,
            _ if self.terminating => State::Terminating,
            _ if self.counted.ready => State::Ready,
            _ => State::NotReady,
        }
    }

    /// Its phase as the page names it.
    pub(super) fn phase(&self) -> &'static str {
        match self.phase {
            _ if self.terminating => "Terminating",
            Phase::Unknown => "Unknown",
            Phase::Pending => "Pending",
            Phase::Running => "Running",
            Phase::Succeeded => "Succeeded",
            Phase::Failed => "Failed",
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A pod `ns/NAME` on node `a`.
    pub(in crate::page::board) fn running(name: &str, ready: bool, restarts: u64) -> PodSeen<'_> {
        let (phase, terminating) = (Phase::Running, false);
        PodSeen { namespace: "ns", name, node: "a", phase, terminating, ready, restarts, created: 7, reason: "" }
    }

    #[test]
    fn pod_has_one_state() {
        let state = |seen: PodSeen<'_>| Pod::new(&seen, "a".into()).state();
        let ready = running("p", true, 0);
        assert_eq!((state(ready), state(running("p", false, 0))), (State::Ready, State::NotReady));
        assert_eq!(state(PodSeen { terminating: true, ..ready }), State::Terminating);
        let ended = |phase: Phase| PodSeen { phase, terminating: true, ..ready };
        assert_eq!(state(ended(Phase::Failed)), State::Failed, "ended pods have ended, also while they are deleted");
        assert_eq!(state(ended(Phase::Succeeded)), State::Succeeded);
        assert!(State::ALL.iter().all(|state| State::of(state.word()) == Some(*state)) && State::ALL.is_sorted());
    }

    #[test]
    fn long_reason_is_cut() {
        let long = "r".repeat(500);
        let seen = PodSeen { reason: &long, ..running("p", false, 0) };
        let mut pod = Pod::new(&seen, "a".into());
        assert_eq!(pod.reason.len(), REASON);
        pod.update(&running("p", false, 0));
        assert_eq!(&*pod.reason, "");
        pod.update(&seen);
        assert_eq!(pod.reason.len(), REASON);
    }

    #[test]
    fn phase_of_the_api_is_named() {
        for (text, shown) in [("Running", "Running"), ("Failed", "Failed"), ("", "Unknown"), ("x", "Unknown")] {
            let seen = PodSeen { phase: Phase::of(text), ..running("p", false, 0) };
            assert_eq!(Pod::new(&seen, "a".into()).phase(), shown);
        }
    }
}
