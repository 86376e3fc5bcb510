//! Messages of rules until they are in the store of the daemon.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn at(mono: u64) -> Now {
    Now { mono, wall: 7 }
}

/// One with a daemon and these rules: topic and class.
fn rules(rules: &[(&str, u64)]) -> Messages {
    let mut messages = Messages::new(Store::default(), 1);
    messages.daemon_came();
    for (topic, class) in rules {
        messages.rule((*topic).to_owned(), &json!({"topic": topic, "priority": class}));
    }
    messages.told();
    messages
}

fn read(row: &MessageRow) -> RuleMessage {
    serde_json::from_str(&row.record).unwrap()
}

/// Number, and what is in it.
fn batch(messages: &mut Messages, mono: u64) -> Option<(u64, Vec<MessageRow>)> {
    match messages.batch(at(mono), false)? {
        FromHelper::Messages { batch, rows, .. } => Some((batch, rows)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_goes_at_once_and_the_rest_once_a_second() {
    let mut messages = rules(&[("a/#", 3), ("a/b", 1), ("c", 0)]);
    assert_eq!(messages.filters(), BTreeSet::from(["a/#".to_owned(), "c".to_owned()]));
    messages.message(at(5), "a/b", Some(b"x"), false);
    let (first, rows) = batch(&mut messages, 5).unwrap();
    assert_eq!(rows.iter().map(|row| (&*row.rule, row.class)).collect::<Vec<_>>(), [("a/#", 3), ("a/b", 1)]);
    let (one, other) = (read(&rows[0]), read(&rows[1]));
    assert!(one.topic == "a/b" && one.payload == b"x" && one.at_ms == 7 && one.key != other.key);
    messages.message(at(6), "a/c", Some(b"1"), false);
    assert_eq!((batch(&mut messages, 2_000), messages.wake()), (None, None), "the first is not in the store");
    messages.stored(first + 1);
    messages.stored(first);
    assert_eq!((batch(&mut messages, 900), messages.wake()), (None, Some(1_005)));
    messages.message(at(901), "a/d", Some(b"2"), false);
    let (_, rows) = batch(&mut messages, 1_005).unwrap();
    assert_eq!(rows.iter().map(|row| read(row).topic).collect::<Vec<_>>(), ["a/c", "a/d"], "in their order");
}

#[test]
fn message_without_a_rule_or_too_long_is_ignored() {
    let mut messages = rules(&[("a", 0), ("b/+/c+", 0)]);
    messages.message(at(1), "b", Some(b"x"), false);
    messages.message(at(1), "a", None, false);
    messages.message(at(1), "a", Some(&vec![0; MAX_PAYLOAD + 1]), false);
    messages.message(at(1), "a", Some(b"old"), true);
    assert_eq!((messages.refused, messages.taken, batch(&mut messages, 1)), (3, 0, None));
    messages.message(at(1), "a", Some(&vec![0; MAX_PAYLOAD]), false);
    assert_eq!(batch(&mut messages, 1).map(|(_, rows)| rows.len()), Some(1));
}

#[test]
fn d06_unconfirmed_messages_are_sent_to_the_next_daemon() {
    let mut messages = rules(&[("a", 0)]);
    messages.message(at(1), "a", Some(b"1"), false);
    let (_, sent) = batch(&mut messages, 1).unwrap();
    messages.message(at(2), "a", Some(b"2"), false);
    messages.daemon_went();
    assert_eq!(batch(&mut messages, 9_000), None);
    messages.daemon_came();
    messages.rule("a".into(), &json!({"topic": "a"}));
    messages.told();
    let (number, again) = batch(&mut messages, 9_000).unwrap();
    assert_eq!(again[0], sent[0], "with the same key");
    assert_eq!(again.len(), 2);
    messages.stored(number);
    messages.message(at(9_001), "a", Some(b"3"), false);
    assert!(messages.batch(at(9_002), true).is_some(), "at the end nothing waits");
}

#[test]
fn d13_removed_rule_gets_no_messages() {
    let mut messages = rules(&[("a", 0), ("b", 0)]);
    messages.message(at(1), "a", Some(b"1"), false);
    messages.gone("a");
    assert_eq!(batch(&mut messages, 1), None);
    messages.daemon_came();
    messages.told();
    assert!(messages.filters().is_empty());
    for number in 0..1_000 {
        messages.rule(number.to_string(), &json!({"topic": number.to_string()}));
    }
    assert_eq!(messages.filters().len(), RULES);
}

#[test]
fn d06_without_room_the_oldest_of_the_lowest_class_goes() {
    let mut messages = rules(&[("low", 1), ("high", 9)]);
    messages.daemon_went();
    let send = |messages: &mut Messages, topic: &str, number: usize| {
        messages.message(at(1), topic, Some(number.to_string().as_bytes()), false);
    };
    (0..MESSAGES / 2).for_each(|number| send(&mut messages, "low", number));
    (0..MESSAGES).for_each(|number| send(&mut messages, "high", number));
    assert_eq!(messages.dropped, (MESSAGES / 2) as u64);
    assert!(messages.waiting.iter().all(|row| row.class == 9));
    send(&mut messages, "low", 1);
    assert!(messages.waiting.iter().all(|row| row.class == 9), "it goes itself");
    send(&mut messages, "high", 7);
    assert_eq!(read(&messages.waiting[0]).payload, b"1", "the oldest went");
}

proptest! {
    #[test]
    fn d06_memory_is_bounded(sent in proptest::collection::vec((0_usize..4, 0_usize..9_000), 1..400)) {
        let mut messages = rules(&[("0", 0), ("1", 1), ("2", 2), ("3", 9)]);
        messages.daemon_went();
        for (topic, size) in &sent {
            messages.message(at(1), &topic.to_string(), Some(&vec![b'x'; *size]), false);
            prop_assert!(messages.waiting.len() <= MESSAGES && messages.bytes <= BYTES);
        }
        prop_assert_eq!(messages.bytes, messages.waiting.iter().map(|row| row.record.len()).sum::<usize>());
        prop_assert_eq!(messages.taken, messages.dropped + messages.waiting.len() as u64);
    }
}
