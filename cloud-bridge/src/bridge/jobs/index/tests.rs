//! Tests of the index.

use edge_protocol::message::OrderPhase;
use serde_json::json;

use super::super::order::order;
use super::super::status::{Entry, JobPhase};
use super::super::view::tests::job;
use super::*;

fn with(version: &str, phases: &[(&str, OrderPhase)]) -> Job {
    let mut job = job(Kind::Configure, json!({"updateFields": {"a": "b"}}));
    job.version = version.into();
    job.status.phase = Some(JobPhase::InProgress);
    job.status.nodes = phases.iter().map(|(node, phase)| Entry::new(node, *phase, "")).collect();
    job
}

fn names(nodes: &BTreeSet<Box<str>>) -> Vec<&str> {
    nodes.iter().map(|node| &**node).collect()
}

#[test]
fn who_is_under_way_holds_the_order_and_nobody_else() {
    let mut index = Index::default();
    index.set(with("1", &[("a", OrderPhase::InProgress), ("b", OrderPhase::Pending), ("c", OrderPhase::Unknown)]));
    assert_eq!(names(&index.take_changed()), ["a", "c"]);
    assert!(index.group("a").is_empty() && !index.is_whole(), "nobody has made it");
    index.tell("u", order(&with("1", &[]), None).unwrap());
    assert_eq!(names(&index.take_changed()), ["a", "c"]);
    assert!(index.is_whole());
    let (key, told) = index.group("a").pop_first().unwrap();
    assert_eq!((&*key.kind, &*key.namespace, &*key.name, &*told.digest.uid), ("Order", "", "u", "u"));
    assert!(index.group("b").is_empty());
    index.tell("u", order(&with("1", &[]), None).unwrap());
    assert!(index.take_changed().is_empty(), "it is the same");
    index
        .set(with("2", &[("a", OrderPhase::Successful), ("b", OrderPhase::InProgress), ("c", OrderPhase::InProgress)]));
    assert_eq!(names(&index.take_changed()), ["a", "b"]);
    assert!(index.group("a").is_empty() && index.group("b").len() == 1);
    let mut ended = with("3", &[("a", OrderPhase::Successful)]);
    ended.status.phase = Some(JobPhase::Completed);
    index.set(ended);
    assert_eq!(names(&index.take_changed()), ["b", "c"]);
    assert!(matches!(index.find("u"), Found::Ended) && index.jobs.is_empty() && index.of_node.is_empty());
    index.list(Vec::new());
    assert!(matches!(index.find("u"), Found::Unknown));
}

#[test]
fn what_is_older_than_what_was_written_is_not_believed() {
    let mut index = Index::default();
    index.set(with("10", &[("a", OrderPhase::InProgress)]));
    index.set(with("9", &[("a", OrderPhase::Pending)]));
    assert_eq!(names(&index.take_changed()), ["a"]);
    index.list(vec![with("9", &[("a", OrderPhase::Pending)])]);
    assert!(index.take_changed().is_empty(), "a list may have been under way");
    let Found::Live(job) = index.find("u") else { panic!() };
    assert_eq!(&*job.version, "10");
    index.remove("u");
    assert_eq!(names(&index.take_changed()), ["a"]);
    assert!(index.live().next().is_none());
}

#[test]
fn a_yes_at_the_job_reaches_those_under_way() {
    let mut index = Index::default();
    let mut job = with("1", &[("a", OrderPhase::InProgress)]);
    index.set(job.clone());
    index.tell("u", order(&job, None).unwrap());
    index.take_changed();
    job.annotations.insert("sampan.dev/confirm".into(), "u".into());
    index.tell("u", order(&job, None).unwrap());
    assert_eq!(names(&index.take_changed()), ["a"]);
    let body: Order = serde_json::from_str(index.group("a").pop_first().unwrap().1.text().text()).unwrap();
    assert!(body.confirmed);
}
