//! The next step of a job. Pure: computes the status to write from the present one, the job's nodes and the time. A
//! node gets its order by becoming InProgress in that status.

use std::collections::BTreeMap;
use std::time::Duration;

use edge_protocol::message::OrderPhase;
use jiff::Timestamp;

use super::status::{Counts, DELETED, Entry, JobPhase, Status, UNTIL, has_room};
use super::view::Job;
use crate::bridge::well_known::HOLD;

/// A node says itself when its time is over; beyond this it is not waited for.
const GRACE: Duration = Duration::from_secs(60);

/// Reasons of nodes that have no order yet.
const OFFLINE: &str = "offline";
const HELD: &str = "held (annotation sampan.dev/hold of the Node)";
const NOT_BEGUN: &str = "not begun: too many nodes have failed";

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// There is a Node of this name, and a bridge speaks for it.
    pub(super) exists: bool,
    /// Connected to any bridge, as far as this one knows.
    pub(super) connected: bool,
    /// Certainly connected to this bridge: only this bridge can give it its order.
    pub(super) here: bool,
    /// Nothing may be started there.
    pub(super) held: bool,
    /// Time for which the connection and the answer of a node in progress have been unchanged.
    pub(super) unchanged: Duration,
}

/// The first status of a job that targets these nodes; false: the node does not exist.
pub(super) fn begin(names: &BTreeMap<String, bool>) -> Status {
    if names.is_empty() {
        return Status::failed("it means no node that a bridge speaks for".to_owned());
    }
    if let Err(why) = has_room(names) {
        return Status::failed(why);
    }
    let entry = |(name, exists): (&String, &bool)| match exists {
        true => Entry::new(name, OrderPhase::Pending, ""),
        false => Entry::new(name, OrderPhase::Failure, "there is no such node, or no bridge speaks for it"),
    };
    Status { phase: Some(JobPhase::Init), reason: String::new(), nodes: names.iter().map(entry).collect() }
}

/// The time of a decision and the role of this bridge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms<'a> {
    pub(super) now: Timestamp,
    /// This bridge judges nodes that say nothing. Others give orders to their own nodes, too.
    pub(super) leads: bool,
    /// The reason why no node can get an order.
    pub(super) blocked: Option<&'a str>,
}

/// What its status should be now. One that has ended stays.
pub(super) fn plan(job: &Job, facts: impl Fn(&str) -> Facts, terms: Terms<'_>) -> Status {
    let Terms { now, leads, blocked } = terms;
    let mut status = job.status.clone();
    if status.is_final() {
        return status;
    }
    let limits = job.deadline().and_then(|deadline| Ok((deadline, job.tolerated(status.nodes.len())?)));
    let (deadline, tolerated) = match limits {
        Ok(limits) => limits,
        // If no node has begun, the job fails at once. Otherwise a client has made the spec invalid later; what is in
        // progress continues.
        Err(why) if status.nodes.iter().all(|entry| entry.phase == OrderPhase::Pending) => return Status::failed(why),
        Err(_) => (now, status.nodes.len()),
    };
    let late = now >= deadline;
    let over = now >= deadline.saturating_add(job.timeout() + GRACE).unwrap_or(Timestamp::MAX);
    let each: Vec<Facts> = status.nodes.iter().map(|entry| facts(&entry.node_name)).collect();
    for (entry, facts) in status.nodes.iter_mut().zip(&each).filter(|_| leads) {
        judge(job, entry, *facts, late, over);
    }
    let failed = status.nodes.iter().filter(|entry| entry.has_failed()).count();
    let stopped = failed > tolerated;
    let mut under_way = status.nodes.iter().filter(|entry| entry.is_under_way()).count();
    let most = if stopped || late || blocked.is_some() || job.is_held() { 0 } else { job.concurrency() };
    for (entry, facts) in status.nodes.iter_mut().zip(&each) {
        if entry.phase != OrderPhase::Pending {
            continue;
        }
        entry.reason = match facts {
            _ if stopped => NOT_BEGUN,
            Facts { connected: false, .. } => OFFLINE,
            Facts { held: true, .. } => HELD,
            _ => "",
        }
        .into();
        if facts.exists && facts.here && entry.reason.is_empty() && under_way < most {
            entry.phase = OrderPhase::InProgress;
            under_way += 1;
        }
    }
    let counts = status.counts();
    let ended = under_way == 0 && (stopped || counts.pending == 0);
    status.phase = Some(match (ended, stopped) {
        (true, true) => JobPhase::Failure,
        (true, false) => JobPhase::Completed,
        _ if counts.total == counts.pending => JobPhase::Init,
        _ => JobPhase::InProgress,
    });
    status.reason = words(job, &status, counts, (failed, tolerated));
    if let Some(why) = blocked.filter(|_| !status.is_final()) {
        status.reason.push_str(&format!("; nothing more is begun: {why}"));
    }
    status
}

/// What becomes of a node by itself: without anything being begun.
fn judge(job: &Job, entry: &mut Entry, facts: Facts, late: bool, over: bool) {
    let failure = match entry.phase {
        OrderPhase::Successful | OrderPhase::Failure => return,
        _ if !facts.exists => Some(DELETED.to_owned()),
        _ if late && !facts.connected => Some(format!("offline {UNTIL}")),
        OrderPhase::Pending if late && facts.held => Some(format!("held {UNTIL}")),
        OrderPhase::Pending if late => Some(format!("not begun {UNTIL}")),
        OrderPhase::Pending => None,
        // Under way, from here on.
        _ if !facts.connected => {
            if facts.unchanged > job.timeout() {
                entry.phase = OrderPhase::Unknown;
                entry.reason = "it fell silent at work, and is waited for".into();
            }
            None
        }
        _ if late && entry.waits_for_confirmation() => Some(format!("not confirmed {UNTIL}")),
        _ if late && entry.waits_for_turn() => Some(format!("waited for its turn {UNTIL}")),
        _ if over || (facts.unchanged > job.timeout() + GRACE && !entry.waits_for_others()) => {
            Some(format!("TimedOut: connected, and no word of its end in {} s", job.timeout_seconds()))
        }
        OrderPhase::Unknown => {
            (entry.phase, entry.reason) = (OrderPhase::InProgress, "".into());
            None
        }
        OrderPhase::InProgress => None,
    };
    if let Some(reason) = failure {
        (entry.phase, entry.reason) = (OrderPhase::Failure, reason.into());
    }
}

/// Text for users.
fn words(job: &Job, status: &Status, counts: Counts, (failed, tolerated): (usize, usize)) -> String {
    let with = |reason: &str| {
        status.nodes.iter().filter(|entry| entry.phase == OrderPhase::Pending && *entry.reason == *reason).count()
    };
    let unasked = counts.failure.saturating_sub(failed);
    let all = [
        (counts.successful, "successful".to_owned()),
        (failed, "failed".to_owned()),
        (unasked, format!("not reached {UNTIL}, or deleted")),
        (counts.in_progress, "in progress".to_owned()),
        (counts.unknown, "silent at work".to_owned()),
        (
            counts.pending,
            match (with(OFFLINE), with(HELD)) {
                (0, 0) => "pending".to_owned(),
                (offline, 0) => format!("pending ({offline} offline)"),
                (0, held) => format!("pending ({held} held)"),
                (offline, held) => format!("pending ({offline} offline, {held} held)"),
            },
        ),
    ];
    let parts: Vec<String> =
        all.into_iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!("{number} {what}")).collect();
    let nodes = if counts.total == 1 { "node" } else { "nodes" };
    let mut words = format!("{} {nodes}: {}", counts.total, parts.join(", "));
    if failed > tolerated {
        words.push_str(&format!("; nothing more is begun: at most {tolerated} may fail"));
    } else if job.is_held() && !status.is_final() {
        words.push_str(&format!("; held: nothing more is begun while the job has the annotation {HOLD}"));
    }
    words
}

#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
