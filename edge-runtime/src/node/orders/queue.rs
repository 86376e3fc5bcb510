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
mod tests {
    use edge_protocol::message::{ActionStep, OrderPhase, OrderStatus};
    use serde_json::to_value;

    use super::*;

    fn queue(jobs: &[&str]) -> Queue {
        let mut queue = Queue::default();
        jobs.iter().for_each(|job| queue.add(job));
        queue
    }

    fn second(seconds: u64) -> Mono {
        Mono(seconds * 1000)
    }

    #[test]
    fn last_word_of_a_helper_says_when_an_order_goes_on() {
        let next = |phase, steps: &[(&str, bool)]| {
            let step = |&(action, status): &(&str, bool)| ActionStep {
                action: action.into(),
                status,
                ..ActionStep::default()
            };
            let status = OrderStatus { phase, action_flow: steps.iter().map(step).collect(), ..OrderStatus::default() };
            let next = Next::of(&to_value(&status).unwrap());
            assert_eq!(next == Next::Never, phase.is_final());
            assert_eq!(next == Next::WhenConfirmed, status.waits_for_confirmation());
            next
        };
        let unconfirmed = [("Check", true), (WAITING_CONFIRMATION, false)];
        assert_eq!(next(OrderPhase::InProgress, &unconfirmed), Next::WhenConfirmed);
        assert_eq!(next(OrderPhase::Failure, &unconfirmed), Next::Never);
        assert_eq!(next(OrderPhase::InProgress, &[(WAITING_CONFIRMATION, true)]), Next::InAWhile);
        assert_eq!(next(OrderPhase::Pending, &[]), Next::InAWhile);
        assert_eq!(next(OrderPhase::Successful, &[("Pull", true)]), Next::Never);
        assert_eq!(Next::of(&Value::Null), Next::InAWhile);
    }

    #[test]
    fn order_that_waits_for_a_confirmation_stands_before_no_other() {
        let mut queue = queue(&["upgrade", "images"]);
        queue.end_turn(Next::WhenConfirmed, second(0));
        assert_eq!(queue.first(), Some("images"));
        queue.end_turn(Next::Never, second(1));
        for now in 2..500 {
            queue.wake(second(now), |_| false);
            assert_eq!(queue.first(), None, "nobody has confirmed it");
            assert!(queue.due().is_some_and(|due| due > second(now) && due <= second(now + 3)));
        }
    }

    #[test]
    fn confirmed_order_has_its_turn_whoever_comes_later() {
        let mut queue = queue(&["upgrade", "images"]);
        queue.end_turn(Next::WhenConfirmed, second(0));
        queue.wake(second(3), |job| job == "upgrade");
        queue.add("more images");
        queue.end_turn(Next::Never, second(4));
        assert_eq!((queue.first(), queue.due()), (Some("upgrade"), None));
    }

    #[test]
    fn order_without_an_end_goes_on_a_minute_later_behind_the_others() {
        let mut queue = queue(&["waits for its hour", "images"]);
        queue.end_turn(Next::InAWhile, second(0));
        assert_eq!((queue.first(), queue.due()), (Some("images"), Some(second(60))));
        queue.wake(second(59), |_| false);
        queue.end_turn(Next::Never, second(59));
        assert_eq!(queue.first(), None);
        queue.wake(second(60), |_| false);
        assert_eq!((queue.first(), queue.due()), (Some("waits for its hour"), None));
    }

    #[test]
    fn order_behind_another_is_reported_once_as_waiting() {
        let mut queue = queue(&["upgrade", "images", "values"]);
        queue.remove("values");
        assert_eq!(queue.newly_waiting(), ["images"]);
        assert!(queue.newly_waiting().is_empty());
        queue.end_turn(Next::InAWhile, second(0));
        assert!(queue.newly_waiting().is_empty(), "its turn has come");
        queue.wake(second(60), |_| false);
        assert_eq!(queue.newly_waiting(), ["upgrade"], "again behind the images");
        queue.end_turn(Next::Never, second(61));
        queue.end_turn(Next::InAWhile, second(61));
        queue.wake(second(121), |_| false);
        assert!(queue.newly_waiting().is_empty(), "it waits behind no other");
    }

    #[test]
    fn order_is_there_once_whether_it_comes_again_or_goes() {
        let mut queue = queue(&["upgrade"]);
        queue.end_turn(Next::WhenConfirmed, second(0));
        queue.add("upgrade");
        assert_eq!((queue.first(), queue.due()), (Some("upgrade"), None), "it says itself what it waits for");
        queue.end_turn(Next::WhenConfirmed, second(0));
        queue.remove("upgrade");
        queue.wake(second(9), |_| true);
        assert_eq!((queue.first(), queue.due()), (None, None));
    }

    #[test]
    fn order_that_changes_while_it_waits_is_reported_once() {
        let mut queue = queue(&["upgrade", "images", "images"]);
        assert_eq!(queue.newly_waiting(), ["images"]);
        queue.add("upgrade");
        assert_eq!(queue.newly_waiting(), ["upgrade"]);
        assert_eq!(queue.first(), Some("images"));
    }

    #[test]
    fn empty_queue_has_no_turns() {
        let mut queue = Queue::default();
        queue.end_turn(Next::InAWhile, second(0));
        queue.drop_first();
        queue.remove("unknown");
        queue.wake(second(u64::MAX / 1000), |_| true);
        assert!(queue.first().is_none() && queue.due().is_none() && queue.newly_waiting().is_empty());
    }

    #[test]
    fn confirmation_is_looked_for_every_three_seconds() {
        let mut queue = queue(&["upgrade"]);
        queue.end_turn(Next::WhenConfirmed, second(0));
        queue.wake(Mono(2_999), |_| panic!("it is not time to look"));
        queue.wake(second(3), |_| false);
        assert_eq!((queue.first(), queue.due()), (None, Some(second(6))));
        queue.wake(second(1), |_| panic!("nor by a reading that is older"));
        queue.wake(second(60), |job| job == "upgrade");
        assert_eq!(queue.first(), Some("upgrade"));
    }
}
