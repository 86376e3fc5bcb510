//! Bookkeeping of pods: turns, times and held statuses.

use super::*;
use crate::pod::record::PodSource;

#[test]
fn a_status_is_held_once() {
    let now = Now { wall: jiff::Timestamp::UNIX_EPOCH, mono: Mono(0), boot_id: "b".into() };
    let mut pods = Pods::default();
    pods.insert(Entry::new(Rc::default(), PodRecord::new("a", "ns", "a", PodSource::Api, &now)));
    assert_eq!(pods.next_dirty().as_deref(), Some("a"));
    let entry = pods.get_mut("a").unwrap();
    assert!(entry.held.holds(Mono(0), HOLD));
    assert!(entry.held.holds(Mono(10), HOLD), "and not for longer with each look");
    assert_eq!(pods.wake_due(Mono(10)), Some(Mono(250)));
    assert_eq!((pods.next_dirty(), pods.wake_due(Mono(250))), (None, None));
    assert_eq!(pods.next_dirty().as_deref(), Some("a"));
    assert!(!pods.get_mut("a").unwrap().held.holds(Mono(250), HOLD), "it is due");
    assert_eq!((pods.wake_due(Mono(251)), pods.any_dirty()), (None, false), "and no turn follows by itself");
}

#[test]
fn quick_start_is_reported_in_one_status() {
    use crate::pod::record::{ContainerKind, ContainerRecord};
    let now = Now { wall: jiff::Timestamp::UNIX_EPOCH, mono: Mono(0), boot_id: "b".into() };
    let record = PodRecord::new("a", "ns", "a", PodSource::Api, &now);
    let with = |state: ContainerState| {
        let mut record = record.clone();
        record.sandbox.state = SandboxState::Ready { since: now.wall };
        let container = ContainerRecord { state, ..ContainerRecord::new(ContainerKind::App) };
        record.containers.insert("c".into(), container);
        record
    };
    let empty = String::new;
    let preparing = {
        let mut record = record.clone();
        record.sandbox.state = SandboxState::Preparing;
        record
    };
    let pulling = with(ContainerState::Pulling { reason: empty(), message: empty(), volume: None });
    let starting = with(ContainerState::Starting { id: "i".into(), reason: empty(), message: empty() });
    let running = with(ContainerState::Running { id: "i".into(), pid: 1, started_at: now.wall, since: now.mono });
    let mut entry = Entry::new(Rc::default(), record.clone());
    let mut tells = |n: i32, record: &PodRecord, at| entry.tells(&Value::from(n), record, false, Mono(at));
    let told = [tells(1, &preparing, 0), tells(2, &pulling, 1), tells(3, &starting, 2), tells(4, &running, 30)];
    assert_eq!(told, [false, false, false, true]);
    assert!(!tells(4, &running, 31), "it is told");
    assert!(tells(5, &pulling, 32), "a later pull is news");
    assert!(!tells(6, &starting, 40) && tells(6, &starting, 290), "a restart is held for less than a first start");
    let mut entry = Entry::new(Rc::default(), record.clone());
    let mut tells = |record: &PodRecord, at| entry.tells(&Value::from(1), record, false, Mono(at));
    assert!(!tells(&preparing, 0) && tells(&preparing, 1_000), "a start that takes long");
    let mut entry = Entry::new(Rc::default(), record.clone());
    assert!(entry.tells(&Value::from(1), &preparing, true, Mono(0)), "its end waits for nothing");
}

/// A burst of pods on a slow node: work for starting pods must not delay the first turn, and with it the first
/// status, of the others.
#[test]
fn every_pod_gets_its_turn() {
    let now = Now { wall: jiff::Timestamp::UNIX_EPOCH, mono: Mono(0), boot_id: "b".into() };
    let mut pods = Pods::default();
    for uid in ["a", "b", "c", "d"] {
        let record = PodRecord::new(uid, "ns", uid, PodSource::Api, &now);
        pods.insert(Entry::new(Rc::default(), record));
    }
    let mut seen = Vec::new();
    while seen.len() < 4 {
        let uid = pods.next_dirty().expect("somebody waits");
        seen.push(uid);
        // The first two always have news.
        pods.touch("a");
        pods.touch("b");
    }
    seen.sort();
    assert_eq!(seen, ["a", "b", "c", "d"]);
    pods.remove("a");
    assert_eq!(pods.next_dirty().as_deref(), Some("b"));
    assert_eq!((pods.next_dirty(), pods.any_dirty()), (None, false));
}

fn entry(uid: &str) -> Entry {
    let now = Now { wall: jiff::Timestamp::UNIX_EPOCH, mono: Mono(0), boot_id: "b".into() };
    Entry::new(Rc::default(), PodRecord::new(uid, "ns", uid, PodSource::Api, &now))
}

#[test]
fn pod_wakes_at_its_time_and_once() {
    let mut pods = Pods::default();
    assert_eq!(pods.wake_due(Mono(0)), None);
    for (uid, wake) in [("a", Some(Mono(20))), ("b", Some(Mono(10))), ("c", None)] {
        pods.insert(Entry { wake, ..entry(uid) });
        pods.next_dirty();
    }
    assert_eq!((pods.wake_due(Mono(9)), pods.any_dirty()), (Some(Mono(10)), false));
    assert_eq!((pods.wake_due(Mono(10)), pods.next_dirty().as_deref()), (Some(Mono(20)), Some("b")));
    pods.touch("a");
    assert_eq!((pods.wake_due(Mono(30)), pods.next_dirty().as_deref()), (None, Some("a")));
    assert_eq!((pods.wake_due(Mono(40)), pods.any_dirty()), (None, false), "one turn for both reasons");
}

#[test]
fn earlier_of_wake_and_held_status_counts() {
    let mut pods = Pods::default();
    pods.insert(Entry { wake: Some(Mono(50)), held: Hold::Until(Mono(20)), ..entry("a") });
    pods.next_dirty();
    assert_eq!(pods.wake_due(Mono(0)), Some(Mono(20)));
    assert_eq!((pods.wake_due(Mono(20)), pods.next_dirty().as_deref()), (Some(Mono(50)), Some("a")));
    assert_eq!(pods.get("a").map(|entry| entry.held), Some(Hold::Over));
}

#[test]
fn news_of_unknown_pods_are_dropped() {
    let now = Now { wall: jiff::Timestamp::UNIX_EPOCH, mono: Mono(0), boot_id: "b".into() };
    let mut pods = Pods::default();
    pods.tell("gone", PodEvent::DependencyChanged, &now);
    pods.touch("gone");
    assert!(!pods.any_dirty() && pods.remove("gone").is_none());
    pods.insert(entry("a"));
    (0..3).for_each(|_| pods.tell("a", PodEvent::DependencyChanged, &now));
    assert_eq!((pods.next_dirty().as_deref(), pods.any_dirty()), (Some("a"), false), "one turn for all of it");
}

#[test]
fn unchanged_status_ends_the_hold() {
    let mut entry = Entry { reported: Value::from(1), held: Hold::Until(Mono(9)), ..entry("a") };
    let record = entry.record.clone();
    assert!(!entry.tells(&Value::from(1), &record, false, Mono(0)));
    assert_eq!(entry.held, Hold::No, "it has changed back");
    assert!(entry.tells(&Value::from(2), &record, false, Mono(0)), "nothing starts");
    assert_eq!(entry.reported, 2);
}

#[test]
fn only_resizes_that_wait_look_for_room() {
    let mut pods = Pods::default();
    let mut waits = entry("waits");
    waits.record.resize_pending = Some(Refusal { reason: "Deferred".into(), message: String::new() });
    [waits, entry("other")].into_iter().for_each(|entry| pods.insert(entry));
    while pods.next_dirty().is_some() {}
    pods.touch_pending_resizes();
    assert_eq!((pods.next_dirty().as_deref(), pods.any_dirty()), (Some("waits"), false));
}

#[test]
fn static_pod_is_found_by_the_uid_of_its_mirror() {
    let mut pods = Pods::default();
    pods.insert(Entry { mirror_uid: Some("m".into()), ..entry("a") });
    pods.insert(entry("b"));
    assert_eq!(["m", "a", "b", ""].map(|uid| pods.by_api_uid(uid)), [Some("a"), Some("a"), Some("b"), None]);
    assert!(pods.by_name("ns", "b").is_some() && pods.by_name("other", "b").is_none());
}
