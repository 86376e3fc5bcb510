//! A node with a faulty, hostile or foreign bridge. Above all: it deletes nothing.

mod common;

use common::{NOW, changes, digest, feed, key, object, sent, welcome};
use edge_protocol::SessionError;
use edge_protocol::edge::{Change, EdgeEvent, EdgeFacts, EdgeSession};
use edge_protocol::message::{ObjectRef, Position, Report, ToCloud, ToEdge};
use edge_protocol::version::RefuseReason;
use std::time::Duration;

/// A node that holds two pods of stream `s` at 10.
fn node() -> EdgeSession {
    let mut facts = EdgeFacts::new("n", "boot");
    facts.cluster = Some("c".into());
    facts.position = Some(Position { stream: "s".into(), seq: 10 });
    facts.held = vec![digest("a", 1), digest("b", 1)];
    EdgeSession::new(facts, NOW)
}

fn put(seq: u64, sync: bool, name: &str, version: u64) -> ToEdge {
    ToEdge::Put { seq, sync, object: object(name, version) }
}

fn violation(messages: &[ToEdge]) -> String {
    let mut edge = node();
    match feed(&mut edge, messages) {
        Err(SessionError::Violation(text)) => {
            let harmful = changes(&mut edge).into_iter().any(|c| !matches!(c, Change::Put { .. }));
            assert!(!harmful, "something was deleted");
            text
        }
        other => panic!("{other:?} for {messages:?}"),
    }
}

#[test]
fn lies_about_order_are_violations() {
    let begin = |count| ToEdge::SyncBegin { seq: 20, count };
    let list = |objects| ToEdge::SyncDigests { objects };
    let end = |count| ToEdge::SyncEnd { seq: 20, count };
    let done = ToEdge::SyncDone { seq: 20 };
    let full = |rest: &[ToEdge]| [&[welcome(false)], rest].concat();
    for (messages, wanted) in [
        (vec![put(11, false, "a", 2)], "before the welcome"),
        (vec![welcome(true), welcome(true)], "second welcome"),
        (vec![welcome(true), put(10, false, "a", 2)], "change 10 after change 10"),
        (vec![welcome(true), put(12, false, "a", 2), put(11, false, "b", 2)], "change 11 after change 12"),
        (
            vec![welcome(true), ToEdge::Delete { seq: 3, object: ObjectRef { key: key("a"), uid: "uid-a".into() } }],
            "change 3",
        ),
        (vec![welcome(true), put(11, true, "a", 2)], "without its begin"),
        (vec![welcome(true), done.clone()], "end of no full sync"),
        (vec![welcome(true), ToEdge::SyncBegin { seq: 9, count: 0 }], "full sync at 9 after change 10"),
        (full(&[begin(1), begin(1)]), "inside a full sync"),
        (full(&[begin(1), put(21, false, "a", 2)]), "live change 21 inside a full sync"),
        (full(&[begin(1), list(vec![digest("a", 1)]), done.clone()]), "before its end"),
        (full(&[begin(2), list(vec![digest("a", 1)]), end(2)]), "after 1 digests"),
        (full(&[begin(2), list(vec![digest("a", 1)]), end(1)]), "ends as 1"),
        (full(&[begin(1), list(vec![digest("a", 1), digest("b", 1)])]), "more than the 1 digests"),
        (full(&[begin(2), list(vec![digest("a", 1), digest("a", 1)])]), "twice"),
        (full(&[begin(1), list(vec![digest("a", 1)]), end(1), put(5, true, "a", 1)]), "not asked for"),
        (full(&[begin(1), list(vec![digest("x", 1)]), end(1), put(21, true, "x", 1)]), "not asked for"),
        (
            full(&[begin(1), list(vec![digest("x", 1)]), end(1), put(5, true, "x", 1), put(6, true, "x", 1)]),
            "not asked for",
        ),
        (full(&[begin(1), list(vec![digest("x", 1)]), end(1), put(5, true, "y", 1)]), "not asked for"),
        (full(&[begin(u64::MAX)]), "full list of"),
        (full(&[begin(0), ToEdge::SyncEnd { seq: 21, count: 0 }]), "at 21"),
        (full(&[begin(0), end(0), end(0)]), "ends as 0"),
    ] {
        let text = violation(&messages);
        assert!(text.contains(wanted), "{text:?} for {messages:?}");
    }
}

#[test]
fn resume_is_accepted_only_if_offered() {
    let mut fresh = EdgeSession::new(EdgeFacts::new("n", "boot"), NOW);
    assert!(matches!(feed(&mut fresh, &[welcome(true)]), Err(SessionError::Violation(_))));
    let mut other = node();
    let ToEdge::Welcome(mut greeting) = welcome(true) else { unreachable!("made above") };
    greeting.stream = "another".into();
    assert!(matches!(feed(&mut other, &[ToEdge::Welcome(greeting)]), Err(SessionError::Violation(_))));
}

#[test]
fn another_cluster_and_a_refusal_are_left_alone() {
    let ToEdge::Welcome(mut greeting) = welcome(false) else { unreachable!("made above") };
    greeting.cluster = "theirs".into();
    let refused = ToEdge::Refuse { reason: RefuseReason::Forbidden, message: "no".into() };
    for (message, wanted) in
        [(ToEdge::Welcome(greeting), RefuseReason::WrongCluster), (refused, RefuseReason::Forbidden)]
    {
        let mut edge = node();
        let result = feed(&mut edge, &[message]);
        assert!(matches!(&result, Err(SessionError::Refused { reason, .. }) if *reason == wanted), "{result:?}");
        assert_eq!(edge.poll_event(), None);
    }
}

#[test]
fn only_a_complete_list_with_objects_deletes() {
    let mut edge = node();
    let begin = ToEdge::SyncBegin { seq: 20, count: 1 };
    let list = ToEdge::SyncDigests { objects: vec![digest("a", 1)] };
    feed(&mut edge, &[welcome(false), begin, list, ToEdge::SyncEnd { seq: 20, count: 1 }]).expect("in order");
    assert_eq!(changes(&mut edge), []);
    feed(&mut edge, &[ToEdge::SyncDone { seq: 20 }]).expect("in order");
    assert_eq!(changes(&mut edge), [Change::SyncComplete { seq: 20, absent: vec![digest("b", 1)] }]);

    let mut edge = node();
    let empty = [
        welcome(false),
        ToEdge::SyncBegin { seq: 20, count: 0 },
        ToEdge::SyncEnd { seq: 20, count: 0 },
        ToEdge::SyncDone { seq: 20 },
    ];
    feed(&mut edge, &empty).expect("in order");
    assert_eq!(changes(&mut edge), []);
    let asked = sent::<ToCloud>(|| edge.poll_transmit(NOW));
    assert!(asked.contains(&ToCloud::Unlisted { objects: vec![digest("a", 1), digest("b", 1)] }), "{asked:?}");
    // The bridge finds one gone, and speaks of the other: only then is there a position again.
    let gone = ToEdge::Delete { seq: 21, object: ObjectRef { key: key("a"), uid: "uid-a".into() } };
    feed(&mut edge, &[gone, put(22, false, "b", 2)]).expect("in order");
    let positions: Vec<_> = changes(&mut edge).iter().map(|c| c.position("s").map(|p| p.seq)).collect();
    assert_eq!(positions, [None, Some(22)]);
}

#[test]
fn another_uid_under_the_same_key_is_a_delete_and_a_create() {
    let mut edge = node();
    let mut other = object("a", 1);
    other.digest.uid = "uid-new".into();
    feed(&mut edge, &[welcome(true), ToEdge::Put { seq: 11, sync: false, object: other.clone() }]).expect("in order");
    // A power cut may happen between the two: a node with only the first restarts before the second.
    let deleted = Change::Delete { key: key("a"), uid: "uid-a".into(), seq: 10, sync: false };
    assert_eq!(changes(&mut edge), [deleted, Change::Put { object: other, seq: 11, sync: false }]);
    edge.committed(10);
    assert!(!sent::<ToCloud>(|| edge.poll_transmit(NOW)).contains(&ToCloud::Ack { seq: 11 }));
    edge.committed(11);
    assert!(sent::<ToCloud>(|| edge.poll_transmit(NOW)).contains(&ToCloud::Ack { seq: 11 }));
}

#[test]
fn a_poison_object_is_refused_and_the_others_go_on() {
    let mut edge = node();
    let puts: Vec<_> = (0..100).map(|n| put(11 + n, false, &format!("p{n}"), 1)).collect();
    feed(&mut edge, &[vec![welcome(true)], puts].concat()).expect("in order");
    assert_eq!(changes(&mut edge).len(), 100);
    edge.nack(&key("p7"), "uid-p7", "x".repeat(5_000));
    edge.committed(110);
    let out = sent::<ToCloud>(|| edge.poll_transmit(NOW));
    let reason =
        out.iter().find_map(|m| if let ToCloud::Nack { object, reason } = m { Some((object, reason)) } else { None });
    let (object, reason) = reason.expect("a nack");
    assert_eq!((object.key.name.as_str(), reason.len()), ("p7", 1024));
    assert!(out.contains(&ToCloud::Ack { seq: 110 }));
    edge.committed(999);
    edge.committed(20);
    assert_eq!(sent::<ToCloud>(|| edge.poll_transmit(NOW)), [], "nothing is acknowledged twice or never received");
}

#[test]
fn reports_have_a_window_and_are_settled_once() {
    let mut edge = node();
    feed(&mut edge, &[welcome(true)]).expect("in order");
    let report = || Report::Node { node: serde_json::json!({}) };
    let room = edge.up_room();
    for id in 0..room as u64 {
        edge.up(id, report()).expect("room");
        edge.up(id, report()).expect("the same row again is nothing new");
    }
    assert!(edge.up(999, report()).is_err());
    assert_eq!(sent::<ToCloud>(|| edge.poll_transmit(NOW)).len(), room + 1, "the hello and each row once");
    let refused = ToEdge::UpRefuse { id: 1, reason: "bad".into() };
    feed(&mut edge, &[ToEdge::UpAck { ids: vec![0, 0, 77] }, refused.clone(), refused]).expect("in order");
    let events: Vec<_> = std::iter::from_fn(|| edge.poll_event()).skip(1).collect();
    assert_eq!(events, [EdgeEvent::UpAcked(0), EdgeEvent::UpRefused(1, "bad".into())]);
    assert_eq!(edge.up_room(), 2);
}

#[test]
fn events_that_the_api_takes_slowly_leave_room_for_statuses() {
    let mut edge = node();
    feed(&mut edge, &[welcome(true)]).expect("in order");
    let event = || Report::Event { event: serde_json::json!({}) };
    let taken = (0..).take_while(|id| edge.up(*id, event()).is_ok()).count();
    assert_eq!((taken, edge.up_room()), (48, 16));
    edge.up(1000, Report::Node { node: serde_json::json!({}) }).expect("room");
    feed(&mut edge, &[ToEdge::UpAck { ids: vec![0] }]).expect("in order");
    edge.up(1001, event()).expect("one has been taken");
    assert!(edge.up(1002, event()).is_err());
}

#[test]
fn too_large_report_is_refused_and_large_ones_go_one_by_one() {
    let mut edge = node();
    feed(&mut edge, &[welcome(true)]).expect("in order");
    let report = |size| Report::Node { node: "x".repeat(size).into() };
    edge.up(1, report(3 << 20)).expect("taken");
    let refused = std::iter::from_fn(|| edge.poll_event()).last();
    assert!(matches!(&refused, Some(EdgeEvent::UpRefused(1, why)) if why.contains("3145")), "{refused:?}");
    edge.up(2, report(600_000)).expect("one is always let through");
    assert_eq!(edge.up_room(), 0);
    assert!(edge.up(3, report(1)).is_err());
    feed(&mut edge, &[ToEdge::UpAck { ids: vec![2] }]).expect("in order");
    edge.up(3, report(1)).expect("room again");
}

#[test]
fn report_too_heavy_for_the_bridge_is_refused_by_the_node() {
    let mut edge = node();
    feed(&mut edge, &[welcome(true)]).expect("in order");
    // Two bytes of text for each empty object: far below the limit of the text, far above that of memory.
    let objects = |count| Report::Node { node: vec![serde_json::json!({}); count].into() };
    edge.up(1, objects(20_000)).expect("taken");
    let refused = std::iter::from_fn(|| edge.poll_event()).last();
    assert!(matches!(&refused, Some(EdgeEvent::UpRefused(1, why)) if why.contains("60")), "{refused:?}");
    assert_eq!(sent::<ToCloud>(|| edge.poll_transmit(NOW)).len(), 1, "the hello alone");
}

#[test]
fn window_of_reports_stays_below_the_limit_of_the_bridge() {
    let mut edge = node();
    feed(&mut edge, &[welcome(true)]).expect("in order");
    let mut id = 0;
    while edge.up_room() > 0 {
        edge.up(id, Report::Node { node: vec![serde_json::json!({}); 5_000].into() }).expect("room");
        id += 1;
    }
    // A report of 5,000 objects weighs 3.8 MiB; the bridge takes 16 MiB at once.
    assert_eq!(id, 3);
    feed(&mut edge, &[ToEdge::UpAck { ids: vec![0, 1, 2] }]).expect("in order");
    assert!(edge.up_room() > 3, "acknowledged reports no longer count");
}

#[test]
fn unknown_messages_are_skipped_and_nacked_but_not_without_end() {
    let mut edge = node();
    edge.handle(
        r#"{"welcome":{"protocol":1,"cluster":"c","session":1,"stream":"s","resume":true,"heartbeatMs":1}}"#,
        NOW,
    )
    .expect("a welcome");
    edge.handle(r#"{"levitate":{"height":3}}"#, NOW).expect("skipped");
    assert!(sent::<ToCloud>(|| edge.poll_transmit(NOW)).contains(&ToCloud::Unsupported { message: "levitate".into() }));
    let flood = (0..100_000).find_map(|_| edge.handle(r#"{"levitate":{}}"#, NOW).err());
    assert!(matches!(flood, Some(SessionError::Violation(_))), "{flood:?}");
    assert!(edge.next_timeout() >= Duration::from_secs(1), "a heartbeat of a millisecond is not believed");
}
