//! Progress of the shutdown of the machine.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::pod::clock::Mono;

/// Progress of the shutdown; by default none is in progress.
#[derive(Default)]
pub(in crate::node) struct Shutdown {
    pub(super) under_way: bool,
    /// Pods' records stay unchanged, so that the next boot continues them.
    pub(super) frozen: bool,
    /// Uids of pods and their grace period; those to stop first are in front.
    pub(super) groups: VecDeque<(Vec<String>, Duration)>,
    /// The first group has until then; then SIGKILL, once.
    pub(super) deadline: Option<Mono>,
    pub(super) killed: bool,
    /// Containers that ended since, while records are frozen.
    pub(super) ended: BTreeSet<String>,
}

impl Shutdown {
    pub(in crate::node) fn is_under_way(&self) -> bool {
        self.under_way
    }

    /// The pods take no turns any more.
    pub(in crate::node) fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// An exit that the pod ignores, because it continues at the next boot.
    pub(in crate::node) fn ended(&mut self, id: &str) {
        self.ended.insert(id.to_owned());
    }
}
