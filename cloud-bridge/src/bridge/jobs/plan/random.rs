//! Jobs of random worlds: nodes that wait, fail, hang, fall silent, come back, are held or deleted, bridges that forget. What
//! holds in all of them, at every step, and that each comes to its end.

use std::time::Duration;

use edge_protocol::message::{ActionStep, OrderPhase, WAITING_TURN};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::json;

use super::super::status::Status;
use super::super::view::tests::job;
use super::super::view::{Job, Kind};
use super::{Facts, Terms, begin, plan};

/// Life of one node, in steps of ten seconds.
#[derive(Clone, Debug)]
struct Life {
    exists: bool,
    /// How long its order waits for its turn there.
    waits: u32,
    /// How long its work takes; none: it never says a word of its end.
    works: Option<u32>,
    fails: bool,
    /// Offline in these steps of every hundred.
    offline: (u32, u32),
    held_until: u32,
    deleted_at: Option<u32>,
}

fn life() -> impl Strategy<Value = Life> {
    let works = prop_oneof![9 => (0_u32..20).prop_map(Some), 1 => Just(None)];
    let waits = prop_oneof![3 => Just(0), 1 => 0_u32..250];
    let deleted = prop_oneof![9 => Just(None), 1 => (0_u32..200).prop_map(Some)];
    (any::<u8>(), waits, works, prop::bool::weighted(0.2), (0_u32..100, 0_u32..100), 0_u32..40, deleted).prop_map(
        |(exists, waits, works, fails, (from, length), held_until, deleted_at)| Life {
            exists: exists > 5,
            waits,
            works,
            fails,
            offline: (from, if length < 50 { 0 } else { from + length - 50 }),
            held_until,
            deleted_at,
        },
    )
}

fn real_failures(status: &Status) -> usize {
    status.nodes.iter().filter(|entry| entry.has_failed()).count()
}

fn under_way(status: &Status) -> usize {
    status.nodes.iter().filter(|entry| entry.is_under_way()).count()
}

fn node(name: &str) -> usize {
    name.parse().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s17_in_every_world_a_job_keeps_its_bounds_and_ends(
        lives in prop::collection::vec(life(), 1..40),
        concurrency in 1_usize..8,
        tolerate in 0_u32..=100,
        forgets in prop::collection::vec(any::<u8>(), 64),
    ) {
        let spec = json!({"concurrency": concurrency, "timeoutSeconds": 60, "failureTolerate": format!("{}", f64::from(tolerate) / 100.0)});
        let mut job: Job = job(Kind::Configure, spec);
        job.annotations.insert("sampan.dev/deadline".into(), "30m".into());
        let tolerated = job.tolerated(lives.len()).unwrap();
        job.status = begin(&lives.iter().enumerate().map(|(number, life)| (number.to_string(), life.exists)).collect());
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut orders = vec![0; lives.len()];
        let mut begun = vec![None; lives.len()];
        let mut changed = vec![0; lives.len()];
        let connected = |number: usize, step: u32| {
            let (from, to) = lives[number].offline;
            !(from..to).contains(&(step % 100))
        };
        let exists = |number: usize, step: u32| lives[number].exists && lives[number].deleted_at.is_none_or(|at| step < at);
        // Thirty minutes until the deadline, and two for those that are under way then.
        let last = 6 * 30 + 13;
        for step in 0..=last {
            // What nodes say: once their work is done and they are connected.
            for entry in job.status.nodes.iter_mut().filter(|entry| entry.is_under_way()) {
                let number = node(&entry.node_name);
                let turn = begun[number].map_or(0, |at: u32| at + lives[number].waits);
                let heard = connected(number, step) && exists(number, step);
                if heard && entry.waits_for_turn() != (step < turn) {
                    let action = ActionStep { action: WAITING_TURN.into(), ..ActionStep::default() };
                    entry.action_flow = if step < turn { vec![action] } else { Vec::new() };
                    changed[number] = step;
                }
                let done = lives[number].works.is_some_and(|works| step >= turn + works);
                if done && heard {
                    entry.phase = if lives[number].fails { OrderPhase::Failure } else { OrderPhase::Successful };
                    changed[number] = step;
                }
            }
            for (number, changed) in changed.iter_mut().enumerate() {
                if step > 0 && connected(number, step) != connected(number, step - 1) {
                    *changed = step;
                }
            }
            // A bridge that has just begun knows of no silence.
            if forgets[step as usize % forgets.len()] < 8 {
                changed.fill(step);
            }
            let facts = |bridge: usize, changed: &[u32], name: &str| {
                let number = node(name);
                // From its side a bridge may not see yet that a node of the other is gone.
                let late = step > 0 && number % 2 != bridge && connected(number, step - 1);
                Facts {
                    exists: exists(number, step),
                    connected: connected(number, step) || late,
                    here: connected(number, step) && number % 2 == bridge,
                    held: step < lives[number].held_until,
                    unchanged: Duration::from_secs(u64::from(10 * (step - changed[number]))),
                }
            };
            let now = start + SignedDuration::from_secs(i64::from(10 * step));
            // Two bridges, of which one leads, or both believe so, or none does for a while.
            for bridge in [0, 1] {
                let leads = forgets[(step as usize * 3 + bridge) % forgets.len()] & 1 == 0 || step > last - 3;
                let terms = Terms { now, leads, blocked: None };
                let before = job.status.clone();
                job.status = plan(&job, |name| facts(bridge, &changed, name), terms);
                let mut given = Vec::new();
                for (old, new) in before.nodes.iter().zip(&job.status.nodes) {
                    let number = node(&new.node_name);
                    prop_assert_eq!(&old.node_name, &new.node_name);
                    if old.phase == OrderPhase::Pending && new.is_under_way() {
                        orders[number] += 1;
                        given.push(number);
                        let facts = facts(bridge, &changed, &new.node_name);
                        prop_assert!(facts.exists && facts.here && !facts.held, "step {} node {}", step, number);
                    }
                    if old.phase.is_final() {
                        prop_assert_eq!(old, new, "a verdict stays");
                    }
                    let back = old.phase != OrderPhase::Pending && new.phase == OrderPhase::Pending;
                    prop_assert!(!back, "never back to the beginning");
                }
                if !given.is_empty() {
                    prop_assert!(under_way(&job.status) <= concurrency);
                    prop_assert!(real_failures(&job.status) <= tolerated);
                }
                for number in given {
                    (begun[number], changed[number]) = (Some(step), step);
                }
                let again = plan(&job, |name| facts(bridge, &changed, name), terms);
                prop_assert_eq!(&again, &job.status, "nothing follows from nothing");
            }
        }
        prop_assert!(orders.iter().all(|times| *times <= 1), "{:?}", orders);
        prop_assert!(job.status.is_final(), "{:?}", job.status);
        prop_assert_eq!(under_way(&job.status), 0);
        let failed = real_failures(&job.status) > tolerated;
        prop_assert_eq!(job.status.phase == Some(super::JobPhase::Failure), failed);
        prop_assert!(failed || job.status.nodes.iter().all(|entry| entry.phase.is_final()));
    }
}
