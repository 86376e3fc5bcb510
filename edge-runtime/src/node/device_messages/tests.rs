//! Which messages of devices are sent next, and which are dropped.

use edge_protocol::message::ToCloud;
use edge_protocol::version::RULES;

use super::*;
use crate::link::LinkHandle;

fn given(batch: u64, rows: &[(&str, &str)]) -> Given {
    let row =
        |(rule, record): &(&str, &str)| MessageRow { rule: (*rule).to_owned(), class: 5, record: (*record).to_owned() };
    Given { batch: Some(batch), rows: rows.iter().map(row).collect(), most_bytes: 1 << 20, ttl_s: 3600 }
}

/// Messages that the node has sent since the last call.
fn sent(link: &LinkHandle) -> Vec<u64> {
    let of = |said: ToCloud| if let ToCloud::Message { id, .. } = said { Some(id) } else { None };
    link.says().into_iter().filter_map(of).collect()
}

fn stored(cx: &Context, rule: &str) -> usize {
    let mut last = 0;
    let next = || {
        let message = cx.store.next_message(rule, last).unwrap()?;
        last = message.id;
        Some(message)
    };
    std::iter::from_fn(next).count()
}

#[test]
fn four_messages_of_each_rule_are_under_way() {
    let (_folder, mut cx) = Context::in_a_folder();
    let link = LinkHandle::for_tests(&cx.paths, &[RULES]);
    cx.link = Some(link.clone());
    let mut messages = Messages::default();
    messages.connected(&mut cx).unwrap();
    let rows = [("a", "1"), ("a", "2"), ("a", "3"), ("a", "4"), ("a", "5"), ("a", "6"), ("b", "7")];
    assert_eq!(messages.keep(&mut cx, given(1, &rows)).unwrap(), Some(1));
    assert_eq!(sent(&link), [1, 2, 3, 4, 7], "no rule waits for another");
    messages.acked(&mut cx, &[2]).unwrap();
    messages.acked(&mut cx, &[2]).unwrap();
    assert_eq!(sent(&link), [5]);
    messages.acked(&mut cx, &[1, 3, 4]).unwrap();
    assert_eq!(sent(&link), [6]);
    assert_eq!((stored(&cx, "a"), stored(&cx, "b")), (2, 1), "the bridge has the others");

    messages.disconnected();
    messages.connected(&mut cx).unwrap();
    assert_eq!(sent(&link), [5, 6, 7], "again, from the first that it may not have");
}

#[test]
fn large_message_goes_alone() {
    let (_folder, mut cx) = Context::in_a_folder();
    cx.link = Some(LinkHandle::for_tests(&cx.paths, &[RULES]));
    let mut messages = Messages::default();
    messages.connected(&mut cx).unwrap();
    let large = format!("\"{}\"", "x".repeat(BYTES));
    messages.keep(&mut cx, given(1, &[("a", large.as_str()), ("a", "2")])).unwrap();
    let rules = messages.rules.as_ref().unwrap();
    assert_eq!(rules.get("a").map(|flight| flight.rows.len()), Some(1));
}

#[test]
fn message_that_the_link_refuses_is_sent_later() {
    let (_folder, mut cx) = Context::in_a_folder();
    cx.link = Some(LinkHandle::for_tests(&cx.paths, &[]));
    let mut messages = Messages::default();
    messages.connected(&mut cx).unwrap();
    assert_eq!(messages.keep(&mut cx, given(1, &[("a", "1")])).unwrap(), Some(1));
    let link = LinkHandle::for_tests(&cx.paths, &[RULES]);
    cx.link = Some(link.clone());
    assert_eq!(messages.again(&mut cx).unwrap(), None, "nothing waited for the store");
    assert_eq!(sent(&link), [1]);
    messages.again(&mut cx).unwrap();
    assert_eq!(sent(&link), [0; 0], "once");
}

#[test]
fn newest_messages_wait_for_room_on_the_disk() {
    let (_folder, mut cx) = Context::in_a_folder();
    let mut messages = Messages::default();
    let large = "x".repeat(100_000);
    cx.store.limit(true).unwrap();
    for batch in 1..=3 {
        let given = given(batch, &[("a", large.as_str())]);
        assert_eq!(messages.keep(&mut cx, given).unwrap(), None);
    }
    assert_eq!((messages.unstored.len(), messages.dropped, stored(&cx, "a")), (UNSTORED, 1, 0));
    cx.store.limit(false).unwrap();
    assert_eq!(messages.again(&mut cx).unwrap(), Some(3));
    assert_eq!((messages.unstored.len(), messages.dropped, stored(&cx, "a")), (0, 0, 2));
    assert_eq!(cx.store.outbox().unwrap().len(), 1, "the dropped one is reported");
}

#[test]
fn batch_of_a_helper_that_went_is_stored_for_nobody() {
    let (_folder, mut cx) = Context::in_a_folder();
    let mut messages = Messages::default();
    cx.store.limit(true).unwrap();
    let large = "x".repeat(100_000);
    messages.keep(&mut cx, given(1, &[("a", large.as_str())])).unwrap();
    messages.helper_went();
    cx.store.limit(false).unwrap();
    assert_eq!(messages.again(&mut cx).unwrap(), None, "another helper has other numbers");
    assert_eq!(stored(&cx, "a"), 1);
}

#[test]
fn running_time_goes_on_over_restarts() {
    let (_folder, mut cx) = Context::in_a_folder();
    let runs = i64::try_from(cx.mono().0 / 1_000).unwrap();
    let first = Clock::default().now(&cx).unwrap();
    assert!((runs..runs + 60).contains(&first), "{first} s, {runs} s after the boot");
    let before = runs + 1_000_000;
    cx.store.write(|writer| writer.set_fact(Fact::MessageClock, &before.to_string())).unwrap();
    let now = Clock::default().now(&cx).unwrap();
    assert!((before..before + 60).contains(&now), "{now} s after {before} s");
}
