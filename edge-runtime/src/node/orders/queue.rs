//! Whose turn it is among the orders of fleet jobs: they are done one after the other, and one that has to wait, for a user or for
//! another time, does not hold up the others. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use edge_protocol::message::WAITING_CONFIRMATION;
use serde_json::Value;

use crate::pod::clock::Mono;

/// Interval of looking whether a user of this node has confirmed an order.
const LOOK: Duration = Duration::from_secs(3);
/// Before an order goes on that has said nothing of its end.
const AGAIN: Duration = Duration::from_secs(60);

/// When an order has its next turn, by the last that was heard of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Next {
    /// It has ended.
    Never,
    WhenConfirmed,
    #[default]
    InAWhile,
}

impl Next {
    /// Reads it from an `OrderStatus`, which is passed on as it is: its types alone would be 10 KB of program.
    pub(super) fn of(status: &Value) -> Self {
        if ["Successful", "Failure"].iter().any(|end| status["phase"] == *end) {
            return Self::Never;
        }
        let last = status["actionFlow"].as_array().and_then(|steps| steps.last());
        match last {
            Some(step) if step["action"] == WAITING_CONFIRMATION && step["status"] != "True" => Self::WhenConfirmed,
            _ => Self::InAWhile,
        }
    }
}

/// Orders by the uid of their job.
#[derive(Default)]
pub(super) struct Queue {
    /// The first one is at work, if any is.
    turns: VecDeque<String>,
    /// Those that have joined `turns` since the last [`newly_waiting`](Self::newly_waiting).
    joined: Vec<String>,
    resting: Vec<Resting>,
}

/// An order between two turns.
struct Resting {
    job: String,
    until: Mono,
    /// It has no turn before a user has confirmed it.
    unconfirmed: bool,
}

impl Queue {
    pub(super) fn first(&self) -> Option<&str> {
        self.turns.front().map(String::as_str)
    }

    /// The order becomes the last one, whatever it waited for.
    pub(super) fn add(&mut self, job: &str) {
        self.remove(job);
        self.turns.push_back(job.to_owned());
        self.joined.push(job.to_owned());
    }

    pub(super) fn remove(&mut self, job: &str) {
        self.turns.retain(|waiting| waiting != job);
        self.resting.retain(|waiting| waiting.job != job);
        self.joined.retain(|waiting| waiting != job);
    }

    /// The turn of the first one is over: without an end it rests.
    pub(super) fn end_turn(&mut self, next: Next, now: Mono) {
        let Some(job) = self.turns.pop_front().filter(|_| next != Next::Never) else { return };
        let unconfirmed = next == Next::WhenConfirmed;
        let until = now.after(if unconfirmed { LOOK } else { AGAIN });
        self.resting.push(Resting { job, until, unconfirmed });
    }

    /// The first one cannot be done.
    pub(super) fn drop_first(&mut self) {
        self.turns.pop_front();
    }

    /// Puts those that have rested behind the ones that wait for their turn.
    pub(super) fn wake(&mut self, now: Mono, is_confirmed: impl Fn(&str) -> bool) {
        let rested = self.resting.extract_if(.., |order| {
            let looks = order.until <= now;
            if looks && order.unconfirmed && !is_confirmed(&order.job) {
                order.until = now.after(LOOK);
                return false;
            }
            looks
        });
        for order in rested {
            self.joined.push(order.job.clone());
            self.turns.push_back(order.job);
        }
    }

    /// Removes and returns those that have joined the queue behind others.
    pub(super) fn newly_waiting(&mut self) -> Vec<String> {
        let mut joined = std::mem::take(&mut self.joined);
        joined.retain(|job| self.turns.iter().skip(1).any(|waiting| waiting == job));
        joined
    }

    /// When to [`wake`](Self::wake) again.
    pub(super) fn due(&self) -> Option<Mono> {
        self.resting.iter().map(|order| order.until).min()
    }
}

#[cfg(test)]
mod tests;
