use std::collections::BTreeMap;
use std::time::Duration;

use edge_protocol::message::{ActionStep, OrderPhase};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::super::status::{JobPhase, Status};
use super::super::view::tests::job;
use super::super::view::{Job, Kind};
use super::{Facts, Terms, begin, plan};
use crate::bridge::well_known::HOLD;

const WELL: Facts = Facts { exists: true, connected: true, here: true, held: false, unchanged: Duration::ZERO };
const OFFLINE: Facts = Facts { connected: false, here: false, ..WELL };

fn at(seconds: i64) -> Timestamp {
    "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

fn terms(seconds: i64) -> Terms<'static> {
    Terms { now: at(seconds), leads: true, blocked: None }
}

/// A job for the nodes `0`, `1` and so on.
fn begun(nodes: usize, concurrency: u32, tolerate: &str) -> Job {
    let mut job =
        job(Kind::Configure, json!({"concurrency": concurrency, "failureTolerate": tolerate, "timeoutSeconds": 100}));
    job.status = begin(&(0..nodes).map(|number| (number.to_string(), true)).collect());
    job
}

fn step(job: &mut Job, facts: impl Fn(&str) -> Facts, seconds: i64) -> Option<JobPhase> {
    job.status = plan(job, facts, terms(seconds));
    job.status.phase
}

/// One letter for each node.
fn phases(status: &Status) -> String {
    let letter = |phase| match phase {
        OrderPhase::Pending => 'p',
        OrderPhase::InProgress => 'i',
        OrderPhase::Successful => 's',
        OrderPhase::Failure => 'f',
        OrderPhase::Unknown => 'u',
    };
    status.nodes.iter().map(|entry| letter(entry.phase)).collect()
}

fn end(job: &mut Job, node: usize, phase: OrderPhase) {
    job.status.nodes[node].phase = phase;
}

#[test]
fn as_many_as_the_job_says_are_under_way_and_it_completes() {
    let mut job = begun(3, 2, "0");
    assert_eq!(step(&mut job, |_| WELL, 0), Some(JobPhase::InProgress));
    assert_eq!(phases(&job.status), "iip");
    assert_eq!(job.status.reason, "3 nodes: 2 in progress, 1 pending");
    end(&mut job, 0, OrderPhase::Successful);
    step(&mut job, |_| WELL, 1);
    assert_eq!(phases(&job.status), "sii");
    (1..3).for_each(|node| end(&mut job, node, OrderPhase::Successful));
    assert_eq!(step(&mut job, |_| WELL, 2), Some(JobPhase::Completed));
    assert_eq!(job.status.reason, "3 nodes: 3 successful");
    let ended = job.status.clone();
    assert_eq!(plan(&job, |_| OFFLINE, terms(9_999_999)), ended, "what has ended stays");
}

#[test]
fn too_many_failures_stop_it_and_who_is_under_way_ends_first() {
    let mut job = begun(5, 2, "0.2");
    step(&mut job, |_| WELL, 0);
    end(&mut job, 0, OrderPhase::Failure);
    step(&mut job, |_| WELL, 1);
    assert_eq!(phases(&job.status), "fiipp", "one of five may fail");
    end(&mut job, 1, OrderPhase::Failure);
    assert_eq!(step(&mut job, |_| WELL, 2), Some(JobPhase::InProgress));
    assert_eq!(phases(&job.status), "ffipp");
    end(&mut job, 2, OrderPhase::Successful);
    assert_eq!(step(&mut job, |_| WELL, 3), Some(JobPhase::Failure));
    assert_eq!(phases(&job.status), "ffspp");
    assert!(job.status.reason.contains("at most 1 may fail"), "{}", job.status.reason);
    assert_eq!(&*job.status.nodes[3].reason, super::NOT_BEGUN);
}

#[test]
fn who_is_offline_waits_until_the_deadline_and_is_no_failure_of_the_job() {
    let mut job = begun(2, 5, "0");
    job.annotations.insert("sampan.dev/deadline".into(), "1h".into());
    let one = |node: &str| if node == "0" { OFFLINE } else { WELL };
    step(&mut job, one, 0);
    assert_eq!((phases(&job.status), &*job.status.nodes[0].reason), ("pi".into(), "offline"));
    end(&mut job, 1, OrderPhase::Successful);
    assert_eq!(step(&mut job, one, 3599), Some(JobPhase::InProgress));
    assert_eq!(job.status.reason, "2 nodes: 1 successful, 1 pending (1 offline)");
    assert_eq!(step(&mut job, one, 3600), Some(JobPhase::Completed));
    assert_eq!((phases(&job.status), &*job.status.nodes[0].reason), ("fs".into(), "offline until the deadline"));
    assert_eq!(job.status.reason, "2 nodes: 1 successful, 1 not reached until the deadline, or deleted");
}

#[test]
fn who_falls_silent_at_work_is_unknown_keeps_its_place_and_goes_on() {
    let mut job = begun(2, 1, "0");
    step(&mut job, |_| WELL, 0);
    let silent = |unchanged| move |_: &str| Facts { unchanged: Duration::from_secs(unchanged), ..OFFLINE };
    step(&mut job, silent(100), 100);
    assert_eq!(phases(&job.status), "ip", "it may just be rebooting");
    step(&mut job, silent(101), 101);
    assert_eq!(phases(&job.status), "up");
    step(&mut job, |node: &str| if node == "0" { silent(0)("") } else { WELL }, 500);
    assert_eq!(phases(&job.status), "up", "a second is not sent the same way");
    step(&mut job, |_| WELL, 600);
    assert_eq!((phases(&job.status), &*job.status.nodes[0].reason), ("ip".into(), ""));
}

#[test]
fn who_is_connected_and_says_nothing_has_timed_out() {
    let mut job = begun(1, 1, "1");
    step(&mut job, |_| WELL, 0);
    let unchanged = |seconds| move |_: &str| Facts { unchanged: Duration::from_secs(seconds), ..WELL };
    step(&mut job, unchanged(160), 160);
    assert_eq!(phases(&job.status), "i");
    assert_eq!(step(&mut job, unchanged(161), 161), Some(JobPhase::Completed));
    assert!(job.status.nodes[0].reason.starts_with("TimedOut"), "{}", job.status.nodes[0].reason);
}

#[test]
fn who_waits_for_a_yes_has_until_the_deadline() {
    let mut job = begun(1, 1, "0");
    step(&mut job, |_| WELL, 0);
    job.status.nodes[0].action_flow =
        vec![ActionStep { action: "WaitingConfirmation".into(), ..ActionStep::default() }];
    let hours = |_: &str| Facts { unchanged: Duration::from_secs(86_400), ..WELL };
    step(&mut job, hours, 86_400);
    assert_eq!(phases(&job.status), "i");
    assert_eq!(step(&mut job, hours, 7 * 86_400), Some(JobPhase::Completed));
    assert_eq!(&*job.status.nodes[0].reason, "not confirmed until the deadline");
}

#[test]
fn time_begins_with_the_turn_on_the_node() {
    let mut job = begun(1, 1, "0");
    step(&mut job, |_| WELL, 0);
    job.status.nodes[0].action_flow = vec![ActionStep { action: "WaitingTurn".into(), ..ActionStep::default() }];
    let waiting = job.clone();
    let unchanged = |seconds| move |_: &str| Facts { unchanged: Duration::from_secs(seconds), ..WELL };
    step(&mut job, unchanged(86_400), 86_400);
    assert_eq!(phases(&job.status), "i", "another job is at work there");
    let lost = |_: &str| Facts { unchanged: Duration::from_secs(101), ..OFFLINE };
    step(&mut job, lost, 86_600);
    assert_eq!(phases(&job.status), "u");
    step(&mut job, unchanged(999), 90_000);
    assert_eq!(phases(&job.status), "i", "it still waits");

    job.status.nodes[0].action_flow.clear();
    assert_eq!(step(&mut job, unchanged(161), 90_161), Some(JobPhase::Failure));
    assert!(job.status.nodes[0].reason.starts_with("TimedOut"), "{}", job.status.nodes[0].reason);

    for (facts, reason) in [(WELL, "waited for its turn until the deadline"), (OFFLINE, "offline until the deadline")] {
        let mut job = waiting.clone();
        assert_eq!(step(&mut job, |_| facts, 7 * 86_400), Some(JobPhase::Completed));
        assert_eq!(&*job.status.nodes[0].reason, reason);
    }
}

#[test]
fn nothing_is_begun_on_a_node_that_is_held_nor_while_the_job_is() {
    let mut job = begun(2, 2, "0");
    job.annotations.insert(HOLD.into(), "true".into());
    assert_eq!(step(&mut job, |_| WELL, 0), Some(JobPhase::Init));
    assert!(phases(&job.status) == "pp" && job.status.reason.contains("; held"), "{}", job.status.reason);
    job.annotations.insert(HOLD.into(), "false".into());
    let one = |node: &str| Facts { held: node == "0", ..WELL };
    step(&mut job, one, 1);
    assert_eq!((phases(&job.status), &*job.status.reason), ("pi".into(), "2 nodes: 1 in progress, 1 pending (1 held)"));
    end(&mut job, 1, OrderPhase::Successful);
    assert_eq!(step(&mut job, one, 7 * 86_400), Some(JobPhase::Completed));
    assert_eq!(&*job.status.nodes[0].reason, "held until the deadline");
}

#[test]
fn names_of_no_node_are_failures_and_a_node_that_is_deleted_is_none() {
    let names: BTreeMap<String, bool> = [("a".into(), true), ("b".into(), false), ("c".into(), true)].into();
    let mut job = begun(0, 3, "0.4");
    job.status = begin(&names);
    step(&mut job, |_| WELL, 0);
    assert_eq!(
        (phases(&job.status), &*job.status.nodes[1].reason),
        ("ifi".into(), "there is no such node, or no bridge speaks for it")
    );
    end(&mut job, 2, OrderPhase::Successful);
    assert_eq!(step(&mut job, |node: &str| Facts { exists: node != "a", ..WELL }, 1), Some(JobPhase::Completed));
    assert_eq!((phases(&job.status), &*job.status.nodes[0].reason), ("ffs".into(), "the node was deleted"));
    assert_eq!(begin(&BTreeMap::new()).phase, Some(JobPhase::Failure));
}

#[test]
fn nonsense_in_a_job_fails_it_before_anything_is_begun() {
    for (field, annotation) in [("lots", "1h"), ("0.1", "soon")] {
        let mut job = begun(2, 2, field);
        job.annotations.insert("sampan.dev/deadline".into(), annotation.into());
        assert_eq!(step(&mut job, |_| WELL, 0), Some(JobPhase::Failure));
        assert!(job.status.reason.contains("lots") || job.status.reason.contains("soon"), "{}", job.status.reason);
    }
    // A client has changed it meanwhile: nodes in progress finish, and no other begins.
    let mut job = begun(2, 1, "0");
    step(&mut job, |_| WELL, 0);
    job.spec["failureTolerate"] = "lots".into();
    step(&mut job, |_| WELL, 1);
    assert_eq!(phases(&job.status), "if");
}

#[test]
fn bridge_orders_own_nodes_and_the_leader_judges_silent_ones() {
    let mut job = begun(4, 2, "1");
    let of = |here: &'static str| move |node: &str| Facts { here: here.contains(node), ..WELL };
    job.status = plan(&job, of("23"), Terms { leads: false, ..terms(0) });
    assert_eq!(phases(&job.status), "ppii");
    job.status = plan(&job, of("01"), terms(0));
    assert_eq!(phases(&job.status), "ppii", "as many as there may be are under way, wherever");
    let silent = |_: &str| Facts { unchanged: Duration::from_secs(999), ..WELL };
    job.status = plan(&job, silent, Terms { leads: false, ..terms(999) });
    assert_eq!(phases(&job.status), "ppii");
    job.status = plan(&job, silent, Terms { blocked: Some("no Secret"), ..terms(999) });
    assert_eq!(phases(&job.status), "ppff");
    assert!(job.status.reason.ends_with("; nothing more is begun: no Secret"), "{}", job.status.reason);
}
