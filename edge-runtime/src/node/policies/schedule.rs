//! When the kernel's rules of policies are changed, how, and which pods have waited for it. Pure: the caller executes it.
//!
//! The kernel's tables are replaced as a whole, in one transaction, and stay when the daemon ends. While there is a
//! policy, a pod is connected only after the kernel has its rules: before its first packet, and also because it may be
//! a peer of another pod.

use std::collections::BTreeSet;
use std::time::Duration;

use super::done::Done;
use crate::pod::clock::Mono;

/// Pause between two changes of the kernel's rules; changes meanwhile are combined.
const PAUSE: Duration = Duration::from_millis(50);
/// Pause after a change, as a multiple of its time: a great many rules take this share of the board at most...
const SHARE: u32 = 10;
/// ...unless a pod waits for the next change to start. Without pause if the OCI runtime has nothing else to start.
const SHARE_WHILE_WAITED_FOR: u32 = 1;
/// Between two attempts when the kernel, or `nft`, refuses: doubled each time, up to the second one.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_AT_MOST: Duration = Duration::from_secs(60);
/// Number of attempts to delete tables that may not exist: a node without policies may lack `nft`.
const CLEAR_AT_MOST: u32 = 5;

/// Pods that wait no longer, and why that is for nothing, if so.
pub(super) type Answered = (BTreeSet<String>, Result<(), String>);

/// What the kernel holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// This daemon has just started.
    Unknown,
    /// Another state than the desired one.
    Other,
    Nothing,
    /// Tables with this mark.
    Tables(String),
}

/// Whether a change begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Begin {
    No,
    /// Not yet, after a failure. A pod retries with its own back-off, so that it does not delay the end of a deleted pod.
    Refused(Answered),
    Yes,
}

/// How the kernel gets the desired state.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// It has that state.
    Nothing(Answered),
    /// Check whether it has these tables from an earlier daemon.
    Look,
    Replace,
    Clear,
}

/// A problem that users should know.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// The kernel, or `nft`, refuses; once for failures in a row.
    Refused(String),
    /// Neighbours can bypass the rules.
    Around(String),
    /// Rules of deleted policies may be left.
    Left(String),
}

/// What follows from a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) answered: Answered,
    pub(super) notice: Option<Notice>,
}

#[derive(Debug)]
pub(super) struct Schedule {
    /// The desired state may be another one.
    dirty: bool,
    held: Held,
    /// Pods that wait for the next change.
    waiting: BTreeSet<String>,
    /// The state after the running change, when that began, and the pods that wait for it.
    running: Option<(Held, Mono, BTreeSet<String>)>,
    /// When the next change may begin: the first while a pod waits for it, else the second.
    not_before: Option<(Mono, Mono)>,
    failures: u32,
    trouble: String,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            dirty: true,
            held: Held::Unknown,
            waiting: BTreeSet::new(),
            running: None,
            not_before: None,
            failures: 0,
            trouble: String::new(),
        }
    }
}

/// The answer to no pod.
pub(super) fn nobody() -> Answered {
    (BTreeSet::new(), Ok(()))
}

impl Schedule {
    /// The desired state may have changed.
    pub(super) fn changed(&mut self) {
        self.dirty = true;
    }

    /// A pod waits for a change from now on.
    pub(super) fn wait(&mut self, uid: &str) {
        self.waiting.insert(uid.to_owned());
        self.dirty = true;
    }

    /// Mark of the tables that the kernel holds; `None` if there should be none, or during a change.
    pub(super) fn mark(&self) -> Option<&str> {
        match &self.held {
            Held::Tables(mark) if self.running.is_none() => Some(mark),
            _ => None,
        }
    }

    /// Another program has deleted the tables.
    pub(super) fn lost(&mut self) {
        (self.held, self.dirty) = (Held::Other, true);
    }

    /// When a change begins although nothing happens.
    pub(super) fn wake(&self) -> Option<Mono> {
        self.due().filter(|_| self.dirty && self.running.is_none())
    }

    /// When the next change may begin. `None`: at once.
    fn due(&self) -> Option<Mono> {
        let (waited_for, rested) = self.not_before?;
        Some(if self.waiting.is_empty() { rested } else { waited_for })
    }

    /// Whether a change begins now. `is_idle`: the OCI runtime could start a waiting pod. Else more pods join it until
    /// the change is due: each one takes CPU from the starts.
    pub(super) fn begin(&mut self, now: Mono, is_idle: impl FnOnce() -> bool) -> Begin {
        if self.running.is_some() || !self.dirty {
            return Begin::No;
        }
        let hurries = self.failures == 0 && !self.waiting.is_empty() && is_idle();
        if !hurries && self.due().is_some_and(|at| now < at) {
            if self.failures == 0 {
                return Begin::No;
            }
            let why = self.trouble.clone();
            return Begin::Refused(self.answer(Err(why)));
        }
        self.dirty = false;
        Begin::Yes
    }

    fn answer(&mut self, result: Result<(), String>) -> Answered {
        (std::mem::take(&mut self.waiting), result)
    }

    /// Begins to give the kernel this state.
    pub(super) fn write(&mut self, wanted: Held, now: Mono) -> Write {
        if wanted == self.held {
            self.failures = 0;
            return Write::Nothing(self.answer(Ok(())));
        }
        let write = match (&wanted, &self.held) {
            (Held::Tables(_), Held::Unknown) => Write::Look,
            (Held::Tables(_), _) => Write::Replace,
            _ => Write::Clear,
        };
        self.running = Some((wanted, now, std::mem::take(&mut self.waiting)));
        write
    }

    /// The running change has ended.
    pub(super) fn ended(&mut self, done: Done, now: Mono) -> Ended {
        let Some((held, since, waited)) = self.running.take() else {
            return Ended { answered: nobody(), notice: None };
        };
        self.rest(now, now.since(since));
        let (result, notice) = match done {
            // Then the tables are missing.
            Done::Looked(false) => {
                (self.held, self.not_before, self.dirty) = (Held::Other, None, true);
                self.waiting.extend(waited);
                return Ended { answered: nobody(), notice: None };
            }
            Done::Looked(true) | Done::Cleared(Ok(())) => (Ok(()), None),
            Done::Replaced(Ok(around)) => (Ok(()), around.map(Notice::Around)),
            Done::Cleared(Err(why)) if self.failures >= CLEAR_AT_MOST => (Ok(()), Some(Notice::Left(why))),
            Done::Replaced(Err(why)) | Done::Cleared(Err(why)) => (Err(why), None),
        };
        match result {
            Ok(()) => {
                (self.held, self.failures) = (held, 0);
                Ended { answered: (waited, Ok(())), notice }
            }
            Err(why) => Ended { notice: self.failed(&why, now), answered: (waited, Err(self.trouble.clone())) },
        }
    }

    fn failed(&mut self, why: &str, now: Mono) -> Option<Notice> {
        let again = now.after(retry_after(self.failures));
        (self.not_before, self.dirty) = (Some((again, again)), true);
        if self.held == Held::Unknown {
            self.held = Held::Other;
        }
        self.failures = self.failures.saturating_add(1);
        self.trouble = format!("its network policies cannot be applied: {why}");
        (self.failures == 1).then(|| Notice::Refused(why.to_owned()))
    }

    /// Starts the pause after a change that took this long.
    fn rest(&mut self, now: Mono, took: Duration) {
        let after = |share| now.after(PAUSE.max(took.saturating_mul(share)).min(RETRY_AT_MOST));
        self.not_before = Some((after(SHARE_WHILE_WAITED_FOR), after(SHARE)));
    }
}

/// Pause after a failed attempt that followed this number of failures.
fn retry_after(failures: u32) -> Duration {
    RETRY.saturating_mul(1 << failures.min(6)).min(RETRY_AT_MOST)
}

#[cfg(test)]
mod tests;
