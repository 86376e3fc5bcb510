//! Order and time of the turns of orders.

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
        let step =
            |&(action, status): &(&str, bool)| ActionStep { action: action.into(), status, ..ActionStep::default() };
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
