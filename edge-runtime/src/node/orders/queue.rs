//! Whose turn it is among the orders of fleet jobs: they are done one after the other, and one that waits for somebody to confirm
//! it stands before no other. Pure.

use std::collections::VecDeque;

use serde_json::Value;

/// An order, by the uid of its job.
struct Waiting {
    job: String,
    unconfirmed: bool,
}

/// The first one is at work, if any is.
#[derive(Default)]
pub(super) struct Queue(VecDeque<Waiting>);

impl Queue {
    pub(super) fn first(&self) -> Option<&str> {
        self.0.front().map(|first| first.job.as_str())
    }

    /// The order becomes the last one, whatever was known of it.
    pub(super) fn add(&mut self, job: &str) {
        self.remove(job);
        self.0.push_back(Waiting { job: job.to_owned(), unconfirmed: false });
    }

    pub(super) fn remove(&mut self, job: &str) {
        self.0.retain(|waiting| waiting.job != job);
    }

    /// The first one is done.
    pub(super) fn end_first(&mut self) {
        self.0.pop_front();
    }

    /// The others come before the first one.
    pub(super) fn put_first_last(&mut self) {
        if let Some(first) = self.0.pop_front() {
            self.0.push_back(first);
        }
    }

    /// Notes whether the first one waits for a confirmation, by its status (edge-protocol, `OrderStatus`).
    pub(super) fn note(&mut self, status: &Value) {
        let last = status["actionFlow"].as_array().and_then(|steps| steps.last());
        let unconfirmed = last.is_some_and(|step| step["action"] == "WaitingConfirmation" && step["status"] == "False");
        if let Some(first) = self.0.front_mut() {
            first.unconfirmed = unconfirmed;
        }
    }

    /// Puts those that wait for a confirmation behind the first one that does not, if there is one. Returns whether there is another
    /// first one.
    pub(super) fn give_way(&mut self) -> bool {
        let next = self.0.iter().position(|waiting| !waiting.unconfirmed).unwrap_or(0);
        self.0.rotate_left(next);
        next > 0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(action: &str, done: &str) -> Value {
        json!({"phase": "InProgress", "actionFlow": [{"action": "Check", "status": "True"}, {"action": action, "status": done}]})
    }

    #[test]
    fn order_that_waits_for_a_confirmation_stands_before_no_other() {
        let mut queue = Queue::default();
        queue.add("upgrade");
        queue.note(&status("WaitingConfirmation", "False"));
        assert!(!queue.give_way(), "there is no other");
        queue.add("images");
        assert!(queue.give_way());
        assert_eq!(queue.first(), Some("images"));
        queue.note(&status("Pull", "False"));
        assert!(!queue.give_way());
        queue.end_first();
        assert_eq!(queue.first(), Some("upgrade"));
        queue.note(&status("WaitingConfirmation", "True"));
        queue.add("images");
        assert!(!queue.give_way(), "it is at work");
    }

    #[test]
    fn orders_that_all_wait_for_a_confirmation_do_not_take_turns() {
        let mut queue = Queue::default();
        queue.add("first");
        queue.add("second");
        queue.note(&status("WaitingConfirmation", "False"));
        assert!(queue.give_way());
        queue.note(&status("WaitingConfirmation", "False"));
        assert!(!queue.give_way());
        assert_eq!(queue.first(), Some("second"));
        queue.add("first");
        assert!(queue.give_way(), "it comes again when it is confirmed");
        assert_eq!(queue.first(), Some("first"));
    }
}
