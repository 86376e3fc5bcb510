//! A container that waits for the helper, and what is ordered for it.

use crate::launch::devices::kept::Allocation;
use crate::node::containers::ContainerRef;

/// A container that waits for the helper.
pub(super) struct Start {
    pub(super) of: ContainerRef,
    pub(super) id: String,
    pub(super) image_id: String,
    /// The order that was given for it.
    pub(super) order: Option<Order>,
    /// Resources whose plugins know of this start.
    pub(super) prepared: Vec<String>,
}

impl Start {
    /// What the container has of a resource at first.
    pub(super) fn nothing(&self) -> Allocation {
        Allocation { uid: self.of.uid.clone(), container: self.of.container.clone(), ..Allocation::default() }
    }
}

pub(super) struct Order {
    pub(super) id: u64,
    pub(super) resource: String,
    /// Devices that it may be answered with, and how many; none for the order of a start.
    pub(super) choice: Option<Choice>,
}

pub(super) struct Choice {
    pub(super) had: Vec<String>,
    pub(super) free: Vec<String>,
    pub(super) count: usize,
}

impl Choice {
    /// Whether the answer has as many devices as were ordered, those that must be among them, and no others than are free.
    pub(super) fn allows(&self, ids: &[String]) -> bool {
        let known = |id: &String| self.had.contains(id) || self.free.contains(id);
        let repeats = ids.iter().enumerate().any(|(at, id)| ids.iter().take(at).any(|before| before == id));
        ids.len() == self.count && !repeats && ids.iter().all(known) && self.had.iter().all(|id| ids.contains(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_must_be_what_was_ordered() {
        let texts = |all: &[&str]| -> Vec<String> { all.iter().map(|id| (*id).to_owned()).collect() };
        let choice = Choice { had: texts(&["a"]), free: texts(&["b", "c"]), count: 2 };
        for right in [["a", "b"], ["c", "a"]] {
            assert!(choice.allows(&texts(&right)), "{right:?}");
        }
        for wrong in [&["a"][..], &["a", "a"], &["b", "c"], &["a", "d"], &["a", "b", "c"], &[]] {
            assert!(!choice.allows(&texts(wrong)), "{wrong:?}");
        }
    }
}
