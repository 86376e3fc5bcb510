//! Which pods are evicted, when, and what is reported.

use std::rc::Rc;

use serde_json::{Value, json};

use super::*;
use crate::eviction::limits::Used;
use crate::pod::clock::Now;
use crate::pod::record::{Deletion, PodRecord, StopHold, Terminal};
use crate::pod::spec::CRITICAL_PRIORITY;
use crate::sys::walk::Bound;

fn entry(source: PodSource, spec: Value) -> Entry {
    let now = Now { wall: jiff::Timestamp::UNIX_EPOCH, mono: Mono(0), boot_id: "b".into() };
    let mut pod = json!({ "spec": spec });
    pod["spec"]["containers"] = json!([]);
    Entry::new(Rc::new(serde_json::from_value(pod).unwrap()), PodRecord::new("a", "ns", "a", source, &now))
}

#[test]
fn critical_static_ended_and_deleted_pods_are_not_evicted() {
    let api = |spec| entry(PodSource::Api, spec);
    assert!(may_go(&api(json!({}))) && may_go(&api(json!({"priority": CRITICAL_PRIORITY - 1}))));
    assert!(!may_go(&api(json!({"priority": CRITICAL_PRIORITY}))));
    assert!(!may_go(&entry(PodSource::Static, json!({}))));
    let mut ended = api(json!({}));
    ended.record.terminal = Some(Terminal { succeeded: false, reason: String::new(), message: String::new() });
    assert!(!may_go(&ended));
    let mut deleted = api(json!({}));
    deleted.record.deletion =
        Some(Deletion { requested_at: Mono(0), grace_s: 30, object_gone: false, reported: false });
    assert!(!may_go(&deleted));
    let (since, from) = (jiff::Timestamp::UNIX_EPOCH, Mono(0));
    deleted.record.stop_hold = Some(StopHold { since, until: since, from });
    assert!(may_go(&deleted), "it does not stop yet");
}

#[test]
fn next_pod_goes_when_the_last_one_is_gone_or_takes_too_long() {
    let mut eviction = Eviction::new(Manager::new(Vec::new(), CLEANUP), false);
    let mut pods = Pods::default();
    pods.insert(entry(PodSource::Api, json!({})));
    assert!(!eviction.is_one_leaving(&pods, Mono(0)), "none was evicted");
    eviction.leaving = Some(("a".into(), Mono(30_000)));
    assert!(eviction.is_one_leaving(&pods, Mono(0)) && eviction.is_one_leaving(&pods, Mono(29_999)));
    assert!(!eviction.is_one_leaving(&pods, Mono(30_000)));
    pods.get_mut("a").unwrap().record.sandbox.state = SandboxState::TearingDown;
    assert!(eviction.is_one_leaving(&pods, Mono(1)), "it still holds what it had");
    pods.get_mut("a").unwrap().record.sandbox.state = SandboxState::Gone;
    assert!(!eviction.is_one_leaving(&pods, Mono(1)));
    pods.remove("a");
    assert!(!eviction.is_one_leaving(&pods, Mono(1)));
}

#[test]
fn lasting_shortage_is_reported_every_five_minutes() {
    let [memory, disk] = [Signal::MemoryAvailable, Signal::NodeFsAvailable];
    assert!(is_news(None, memory, Mono(0)));
    let told = Some((memory, Mono(1_000)));
    assert!(!is_news(told, memory, Mono(1_000)) && is_news(told, disk, Mono(1_000)));
    assert!(!is_news(told, memory, Mono(301_000)) && is_news(told, memory, Mono(301_001)));
    assert!(!is_news(told, memory, Mono(0)), "not by a reading that is older than the report");
}

#[test]
fn shortage_of_disk_is_what_is_met_now() {
    let threshold = |signal| Threshold { signal, amount: crate::eviction::Amount::percent(10) };
    let mut eviction = Eviction::new(Manager::new(Vec::new(), CLEANUP), false);
    assert!(eviction.first().is_none() && !eviction.is_short_of_disk());
    eviction.pressure.disk = true;
    assert!(!eviction.is_short_of_disk(), "the condition lasts longer");
    eviction.met = vec![threshold(Signal::MemoryAvailable), threshold(Signal::ImageFsInodesFree)];
    assert!(eviction.is_short_of_disk());
    assert_eq!(eviction.first(), Some(Signal::MemoryAvailable));
}

#[test]
fn pod_that_cannot_be_counted_holds_the_most() {
    let mut used = DiskUsage { files: Used { bytes: 5, inodes: 1 }, ..DiskUsage::default() };
    assert_eq!((held(&used, 5), held(&used, 0)), (5, 0));
    used.beyond = Some(Bound::Entries);
    assert_eq!((held(&used, 5), held(&used, 0)), (u64::MAX, u64::MAX));
}
