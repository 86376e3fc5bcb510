//! A bridge with a faulty, hostile or unknown node, and which messages are sent.

mod common;

use common::{NOW, Pair, digest, key, listed, object, sent};
use edge_protocol::bridge::{BridgeEvent, BridgeSession, BridgeSettings};
use edge_protocol::edge::{Change, EdgeFacts};
use edge_protocol::frame::{MAX_TO_EDGE, encode};
use edge_protocol::message::{ObjectRef, Position, Report, ToCloud, ToEdge};
use edge_protocol::state::{Body, NodeState, StateError};
use edge_protocol::version::{Hello, ProtocolRange, RefuseReason};
use edge_protocol::{HEARTBEAT, SessionError};
use std::sync::Arc;
use std::time::Duration;

fn hello() -> Hello {
    Hello {
        protocol: ProtocolRange { min: 1, max: 1 },
        features: vec![],
        node: "n".into(),
        cluster: None,
        boot_id: "b".into(),
        agent: String::new(),
        position: None,
        interests: Vec::new(),
    }
}

fn feed(bridge: &mut BridgeSession, state: &mut NodeState, messages: &[ToCloud]) -> Result<(), SessionError> {
    messages.iter().try_for_each(|m| bridge.handle(state, &encode(m), NOW))
}

fn after_hello(state: &mut NodeState, hello: Hello) -> (BridgeSession, Result<(), SessionError>) {
    let mut bridge = BridgeSession::new(BridgeSettings::new("n", "c", 1), state, NOW);
    let result = feed(&mut bridge, state, &[ToCloud::Hello(hello)]);
    state.listed(1);
    (bridge, result)
}

#[test]
fn wrong_hello_is_refused_with_a_reason() {
    for (change, wanted) in [
        ((|h: &mut Hello| h.protocol = ProtocolRange { min: 7, max: 9 }) as fn(&mut Hello), RefuseReason::Protocol),
        (|h| h.node = "other".into(), RefuseReason::WrongNode),
        (|h| h.cluster = Some("theirs".into()), RefuseReason::WrongCluster),
    ] {
        let mut state = listed("s");
        state.set(object("a", 1)).expect("fits");
        let mut hello = hello();
        change(&mut hello);
        let (mut bridge, result) = after_hello(&mut state, hello);
        assert!(matches!(result, Err(SessionError::Refused { reason, .. }) if reason == wanted));
        let out = sent::<ToEdge>(|| bridge.poll_transmit(&state, NOW));
        assert!(matches!(&out[..], [ToEdge::Refuse { reason, .. }] if *reason == wanted), "{out:?}");
    }
}

#[test]
fn g17_memory_of_reports_is_bounded() {
    let mut state = listed("s");
    let (mut bridge, result) = after_hello(&mut state, hello());
    result.expect("welcome");
    let report =
        || Report::Node { node: serde_json::from_str(&format!("[{}0]", "{\"\":0},".repeat(5_000))).expect("JSON") };
    let refused =
        (0..100).find(|id| feed(&mut bridge, &mut state, &[ToCloud::Up { id: *id, report: report() }]).is_err());
    assert!(refused.is_some_and(|id| (2..10).contains(&id)), "{refused:?}");
    assert!(bridge.report_bytes() < 1 << 20, "of text it was little");
}

#[test]
fn g17_names_longer_than_any_object_has_are_a_breach() {
    let long = "x".repeat(254);
    let named = |kind: &str, name: &str, uid: &str| {
        let mut key = key(name);
        key.kind = kind.into();
        ObjectRef { key, uid: uid.into() }
    };
    let nack = |object| ToCloud::Nack { object, reason: "x".repeat(1 << 16) };
    let gone = Report::PodGone { namespace: "ns".into(), name: "p".into(), uid: long.clone() };
    for message in [
        nack(named(&long, "p", "u")),
        nack(named("Pod", &long, "u")),
        nack(named("Pod", "p", &long)),
        ToCloud::Up { id: 1, report: gone },
    ] {
        let mut state = listed("s");
        let (mut bridge, _) = after_hello(&mut state, hello());
        let result = feed(&mut bridge, &mut state, &[nack(named("Pod", &"x".repeat(253), "u"))]);
        assert_eq!(result, Ok(()));
        let result = feed(&mut bridge, &mut state, &[message]);
        assert!(matches!(&result, Err(SessionError::Violation(why)) if why.contains("254 bytes")), "{result:?}");
    }
}

#[test]
fn renewed_body_is_sent_only_to_later_nodes() {
    let mut pair = Pair::new(listed("s"), EdgeFacts::new("n", "b"));
    pair.state.set(object("a", 1)).expect("fits");
    pair.run(NOW).expect("no violation");
    let mut ended = object("a", 1);
    ended.body = serde_json::json!({"version": 1, "ended": true});
    pair.state.renew(&ended.digest, Arc::new(Body::new(ended.body.to_string())));
    assert_eq!(pair.run(NOW).expect("no violation"), 0, "who has it is told nothing");
    let bodies = |pair: &Pair| {
        let sent = pair.changes().into_iter().filter_map(|change| match change {
            Change::Put { object, .. } => Some(object.body.clone()),
            _ => None,
        });
        sent.collect::<Vec<_>>()
    };
    assert_eq!(bodies(&pair), [object("a", 1).body]);
    let mut later = Pair::new(pair.state, EdgeFacts::new("n", "b"));
    later.run(NOW).expect("no violation");
    assert_eq!(bodies(&later), [ended.body]);
}

#[test]
fn lies_are_violations() {
    let up = |id| ToCloud::Up { id, report: Report::Unknown };
    for messages in [
        vec![ToCloud::Hello(hello())],
        vec![ToCloud::Ack { seq: 1 }],
        vec![ToCloud::Ack { seq: u64::MAX }],
        vec![up(1), up(1)],
        vec![ToCloud::Unlisted { objects: vec![] }],
        (0..10_000).map(up).collect(),
    ] {
        let mut state = listed("s");
        let (mut bridge, _) = after_hello(&mut state, hello());
        let result = feed(&mut bridge, &mut state, &messages);
        assert!(matches!(result, Err(SessionError::Violation(_))), "{result:?}");
    }
    let mut state = listed("s");
    let mut bridge = BridgeSession::new(BridgeSettings::new("n", "c", 1), &mut state, NOW);
    assert!(feed(&mut bridge, &mut state, &[ToCloud::Ping { rtt_ms: None }]).is_err(), "nothing before the hello");
    let mut position = hello();
    position.position = Some(Position { stream: "s".into(), seq: 5 });
    let (mut bridge, _) = after_hello(&mut state, position);
    let started = sent::<ToEdge>(|| bridge.poll_transmit(&state, NOW));
    assert!(started.contains(&ToEdge::SyncBegin { seq: 0, count: 0 }), "a position of the future is no position");
}

#[test]
fn nothing_is_listed_before_the_list_is_complete() {
    let mut state = NodeState::new("s");
    state.set(object("a", 1)).expect("fits");
    let mut facts = EdgeFacts::new("n", "b");
    facts.held = vec![digest("a", 1), digest("b", 1)];
    let mut pair = Pair::new(state, facts);
    pair.lists = false;
    pair.run(NOW).expect("speaks");
    assert!(pair.changes().is_empty(), "half a list is no list");
    pair.state.set(object("b", 1)).expect("fits");
    pair.state.listed(7);
    pair.run(NOW).expect("speaks");
    assert!(pair.changes().is_empty(), "a list for another session");
    pair.state.listed(1);
    pair.run(NOW).expect("speaks");
    assert_eq!(pair.changes(), [&Change::SyncComplete { seq: 2, absent: vec![] }], "and no body travels twice");
}

#[test]
fn resume_sends_only_changes() {
    let mut state = listed("s");
    for n in 0..100 {
        state.set(object(&format!("p{n}"), 1)).expect("fits");
    }
    let mut facts = EdgeFacts::new("n", "b");
    facts.position = Some(Position { stream: "s".into(), seq: 100 });
    facts.held = state.digests().collect();
    let mut pair = Pair::new(state, facts);
    assert_eq!(pair.run(NOW), Ok(2), "hello and welcome");
    pair.state.set(object("p5", 2)).expect("fits");
    pair.state.set(object("p5", 3)).expect("fits");
    pair.state.set(object("p5", 3)).expect("the same again is no change");
    pair.state.remove(&key("p6"), "uid-p6");
    assert_eq!(pair.run(NOW), Ok(3), "a put, a delete, one ack");
    let changes: Vec<_> = pair.changes().into_iter().map(Change::seq).collect();
    assert_eq!(changes, [102, 103]);
    assert_eq!(pair.bridge.acked(), Some(103));
}

#[test]
fn the_window_holds_back_and_coalesces() {
    let mut settings = BridgeSettings::new("n", "c", 1);
    settings.window = 1_000;
    let mut state = listed("s");
    let mut facts = EdgeFacts::new("n", "b");
    facts.position = Some(Position { stream: "s".into(), seq: 0 });
    let mut bridge = BridgeSession::new(settings, &mut state, NOW);
    let mut hello = hello();
    hello.position = facts.position;
    feed(&mut bridge, &mut state, &[ToCloud::Hello(hello)]).expect("welcome");
    for version in 0..1_000 {
        state.set(object("a", version)).expect("fits");
        let _ = bridge.poll_transmit(&state, NOW);
    }
    assert!((1_000..1_200).contains(&bridge.in_flight()), "{}", bridge.in_flight());
    let newest = state.seq();
    feed(&mut bridge, &mut state, &[ToCloud::Ack { seq: 5 }]).expect("was sent");
    let rest = sent::<ToEdge>(|| bridge.poll_transmit(&state, NOW));
    assert_eq!(rest, [ToEdge::Put { seq: newest, sync: false, object: object("a", 999) }], "only the newest body");
}

#[test]
fn a_newer_session_makes_the_older_void() {
    let mut state = listed("s");
    let (mut old, result) = after_hello(&mut state, hello());
    result.expect("welcome");
    let _new = BridgeSession::new(BridgeSettings::new("n", "c", 2), &mut state, NOW);
    let late = ToCloud::Up { id: 1, report: Report::Unknown };
    while old.poll_event().is_some() {}
    let result = feed(&mut old, &mut state, &[late]);
    assert!(matches!(result, Err(SessionError::Refused { reason: RefuseReason::Superseded, .. })), "{result:?}");
    assert_eq!(old.poll_event(), None);
    state.set(object("a", 1)).expect("fits");
    let out = sent::<ToEdge>(|| old.poll_transmit(&state, NOW));
    assert!(!out.iter().any(|m| matches!(m, ToEdge::Put { .. } | ToEdge::SyncBegin { .. })), "{out:?}");
}

#[test]
fn deletion_is_permanent_and_withdrawal_is_not() {
    let mut state = listed("s");
    assert_eq!(state.set(object("a", 1)), Ok(true));
    assert!(state.remove(&key("a"), "uid-a"));
    assert!(matches!(state.set(object("a", 2)), Err(StateError::Deleted { .. })));
    assert_eq!(state.set(object("b", 1)), Ok(true));
    assert!(state.withdraw(&key("b"), "uid-b"));
    assert_eq!(state.set(object("b", 1)), Ok(true));
    assert!(state.remove(&key("b"), "uid-other"), "an older object of the same name");
    assert_eq!(state.digests().count(), 1);
    let mut huge = object("c", 1);
    huge.body = "x".repeat(MAX_TO_EDGE).into();
    assert!(matches!(state.set(huge), Err(StateError::TooLarge { .. })));
}

#[test]
fn successor_of_a_name_follows_the_end_of_the_old_object() {
    let mut state = listed("s");
    state.set(object("a", 1)).expect("fits");
    let mut facts = EdgeFacts::new("n", "b");
    facts.held = state.digests().collect();
    facts.position = Some(Position { stream: "s".into(), seq: 1 });
    let mut successor = object("a", 1);
    successor.digest.uid = "uid-new".into();
    assert_eq!(state.set(successor.clone()), Ok(true));
    assert!(matches!(state.set(object("a", 2)), Err(StateError::Deleted { .. })), "there is no way back");
    let mut pair = Pair::new(state, facts);
    pair.run(NOW).expect("resumes");
    let deleted = Change::Delete { key: key("a"), uid: "uid-a".into(), seq: 2, sync: false };
    assert_eq!(pair.changes(), [&deleted, &Change::Put { object: successor, seq: 3, sync: false }]);
}

#[test]
fn removed_tombstones_force_a_full_sync_at_any_time() {
    let mut state = listed("s").keep_tombstones(2);
    for name in ["a", "b", "c", "d", "keep"] {
        state.set(object(name, 1)).expect("fits");
    }
    let position = Position { stream: "s".into(), seq: state.seq() };
    let mut facts = EdgeFacts::new("n", "b");
    facts.held = state.digests().collect();
    facts.position = Some(position.clone());
    let mut pair = Pair::new(state, facts);
    assert!(pair.state.covers(&position));
    pair.run(NOW).expect("resumes");
    for name in ["a", "b", "c", "d"] {
        pair.state.remove(&key(name), &format!("uid-{name}"));
    }
    assert!(!pair.state.covers(&position));
    pair.run(NOW).expect("lists");
    let absent: Vec<_> = ["a", "b", "c", "d"].iter().map(|n| digest(n, 1)).collect();
    assert_eq!(pair.changes(), [&Change::SyncComplete { seq: 9, absent }]);
}

/// A node with an empty list asks about everything it holds. One question has fewer objects than the bridge keeps
/// tombstones; otherwise it would begin with a list again, without end.
#[test]
fn node_in_doubt_about_many_objects_gets_all_answers() {
    let mut facts = EdgeFacts::new("n", "b");
    facts.held = (0..300).map(|at| digest(&format!("p{at}"), 1)).collect();
    let mut pair = Pair::new(listed("s"), facts);
    for _ in 0..10 {
        pair.run(NOW).expect("settles");
        for event in std::mem::take(&mut pair.bridge_events) {
            if let BridgeEvent::Unlisted(objects) = event {
                for object in objects {
                    pair.state.remove(&object.key, &object.uid);
                }
            }
        }
    }
    let deleted = pair.changes().into_iter().filter(|change| matches!(change, Change::Delete { .. }));
    assert_eq!(deleted.count(), 300);
}

#[test]
fn node_can_request_only_its_own_objects() {
    let mut state = listed("s");
    state.set(object("a", 1)).expect("fits");
    let (mut bridge, _) = after_hello(&mut state, hello());
    let list = sent::<ToEdge>(|| bridge.poll_transmit(&state, NOW));
    assert_eq!(list.len(), 4, "{list:?}");
    let mut secret = key("of-another-node");
    secret.kind = "Secret".into();
    feed(&mut bridge, &mut state, &[ToCloud::Need { keys: vec![secret, key("a"), key("a")], done: true }])
        .expect("taken");
    let bodies = sent::<ToEdge>(|| bridge.poll_transmit(&state, NOW));
    assert_eq!(bodies, [ToEdge::Put { seq: 1, sync: true, object: object("a", 1) }, ToEdge::SyncDone { seq: 1 }]);
    assert!(feed(&mut bridge, &mut state, &[ToCloud::Need { keys: vec![], done: true }]).is_err());
}

#[test]
fn nacks_and_doubts_reach_the_caller() {
    let mut state = listed("s");
    let (mut bridge, _) = after_hello(&mut state, hello());
    sent::<ToEdge>(|| bridge.poll_transmit(&state, NOW));
    let nack = ToCloud::Nack { object: ObjectRef { key: key("a"), uid: "u".into() }, reason: "no".into() };
    let doubt = ToCloud::Unlisted { objects: vec![digest("b", 1)] };
    feed(&mut bridge, &mut state, &[nack, doubt]).expect("taken");
    let events: Vec<_> = std::iter::from_fn(|| bridge.poll_event()).skip(1).collect();
    let nacked = BridgeEvent::Nacked { key: key("a"), uid: "u".into(), reason: "no".into() };
    assert_eq!(events, [nacked, BridgeEvent::Unlisted(vec![digest("b", 1)])]);
}

#[test]
fn g15_an_idle_hour_costs_one_small_frame_each_way_per_heartbeat() {
    let mut pair = Pair::new(listed("s"), EdgeFacts::new("n", "b"));
    pair.run(NOW).expect("settles");
    let (mut now, mut frames) = (NOW, 0);
    while now < Duration::from_secs(3600) {
        now = pair.edge.next_timeout().min(pair.bridge.next_timeout());
        pair.edge.on_timeout(now).expect("alive");
        pair.bridge.on_timeout(now).expect("alive");
        frames += pair.run(now).expect("alive");
    }
    assert_eq!(frames, 2 * 240);
}

#[test]
fn silence_is_found_on_both_sides_within_two_heartbeats() {
    let mut pair = Pair::new(listed("s"), EdgeFacts::new("n", "b"));
    pair.run(NOW).expect("settles");
    let just_before = HEARTBEAT * 2 - Duration::from_millis(1);
    assert_eq!(pair.edge.on_timeout(just_before), Ok(()));
    assert_eq!(pair.bridge.on_timeout(just_before), Ok(()));
    assert_eq!(pair.edge.on_timeout(HEARTBEAT * 2), Err(SessionError::Silent(HEARTBEAT * 2)));
    assert_eq!(pair.bridge.on_timeout(HEARTBEAT * 2), Err(SessionError::Silent(HEARTBEAT * 2)));
}
