//! Tests of answers of nodes that are not written yet.

use std::sync::Arc;

use edge_protocol::message::OrderPhase;
use serde_json::json;

use super::super::status::Entry;
use super::super::view::Kind;
use super::super::view::tests::job;
use super::*;

#[test]
fn answers_are_wanted_of_nodes_that_have_their_order() {
    let mut job = job(Kind::Configure, json!({}));
    let phases = [OrderPhase::InProgress, OrderPhase::Unknown, OrderPhase::Failure, OrderPhase::Pending];
    let nodes = ["works", "silent", "failed", "waits"].into_iter().zip(phases);
    job.status.nodes = nodes.map(|(node, phase)| Entry::new(node, phase, "")).collect();
    let live = Found::Live(Arc::new(job));
    let of = |node: &str| concern(&live, node);
    assert_eq!((of("works"), of("silent")), (Concern::UnderWay, Concern::UnderWay));
    assert_eq!((of("failed"), of("waits"), of("stranger")), (Concern::Over, Concern::NoOrder, Concern::NoOrder));
    assert_eq!((concern(&Found::Ended, "a"), concern(&Found::Unknown, "a")), (Concern::Over, Concern::None));
}

#[test]
fn answer_that_could_not_be_written_replaces_no_newer_one() {
    let jobs = Jobs::new(mpsc::unbounded_channel().0);
    let say = |node: &str, reason: &str| {
        let status = OrderStatus { reason: reason.into(), ..OrderStatus::default() };
        drop(jobs.say(node, "u", status));
    };
    say("a", "old");
    say("b", "only");
    let unwritten = jobs.take_said("u");
    say("a", "new");
    jobs.put_back("u", unwritten);
    let said = jobs.take_said("u");
    assert_eq!((&*said["a"].status.reason, said["a"].waiting.len()), ("new", 2), "both answers are waited for");
    assert_eq!(&*said["b"].status.reason, "only");
}
