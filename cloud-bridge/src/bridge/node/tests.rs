//! Tests of a node's connections and their fencing numbers.

use std::time::Duration;

use futures::channel::mpsc::{UnboundedReceiver, unbounded};

use super::*;

fn at(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

fn attach(node: &Node, elsewhere: u64, now: u64) -> (u64, UnboundedReceiver<Command>) {
    let (sender, receiver) = unbounded();
    (node.attach(sender, at(0), elsewhere, at(now)).session, receiver)
}

fn is_superseded(commands: &mut UnboundedReceiver<Command>) -> bool {
    matches!(commands.try_recv(), Ok(Command::Superseded))
}

#[test]
fn fencing_numbers_grow_whatever_the_clock_does() {
    assert_eq!((next_session(0, at(7)), next_session(7, at(7)), next_session(9, at(7))), (7, 8, 10));
    assert_eq!(next_session(3, SystemTime::UNIX_EPOCH - Duration::from_secs(1)), 4);
    assert_eq!(next_session(u64::MAX, at(7)), u64::MAX);
}

#[test]
fn newer_connection_ends_an_older_one_and_no_other() {
    let node = Node::new("a", String::new());
    let (first, mut old) = attach(&node, 0, 5);
    let (second, mut new) = attach(&node, 20, 6);
    assert_eq!((first, second), (5, 21), "above that of another bridge");
    assert!(is_superseded(&mut old) && !is_superseded(&mut new));
    node.detach(first, at(9));
    assert!(node.link().is_some(), "the end of an older connection");
    node.superseded(second);
    assert!(!is_superseded(&mut new), "its own number");
    node.superseded(second + 1);
    assert!(is_superseded(&mut new));
    assert_eq!(attach(&node, 0, 7).0, second + 2);
}

#[test]
fn node_takes_what_its_present_connection_has_said() {
    let node = Node::new("a", String::new());
    let (first, _commands) = attach(&node, 0, 5);
    node.set_takes(first, true, true);
    assert_eq!((node.takes_devices(), node.takes_orders()), (Some(true), Some(true)));
    let (second, _commands) = attach(&node, 0, 6);
    node.set_takes(first, true, true);
    assert_eq!((node.takes_devices(), node.takes_orders()), (None, None), "it was said on an older one");
    node.set_takes(second, false, true);
    node.detach(second, at(8));
    assert_eq!((node.takes_devices(), node.last_seen()), (None, Some(at(8))));
}
