//! Events of a job for users: its start, failed nodes, the reason of a delay, its end.

use edge_protocol::message::OrderPhase;
use jiff::Timestamp;
use sampan_log::printable::printable;
use serde_json::{Value, json};

use super::status::{JobPhase, Status};
use super::view::{JOBS_API, Job};
use crate::bridge::requests::Requests;

/// Maximum number of failed nodes of one job that get events; the status lists all of them.
const MOST: usize = 10;

/// Type, reason and message.
type Said = (&'static str, &'static str, String);

/// The events between two statuses of a job. Pure.
fn between(before: &Status, after: &Status) -> Vec<Said> {
    let mut said = Vec::new();
    let waits = |status: &Status| matches!(status.phase, None | Some(JobPhase::Init));
    if waits(before) && after.phase == Some(JobPhase::InProgress) {
        said.push(("Normal", "Started", format!("begun: {}", after.reason)));
    }
    if waits(after) && !after.nodes.is_empty() && after.reason.contains("held") && !before.reason.contains("held") {
        said.push(("Normal", "Held", after.reason.clone()));
    }
    let failed = |status: &Status| status.nodes.iter().filter(|entry| entry.phase == OrderPhase::Failure).count();
    let room = MOST.saturating_sub(failed(before));
    let old: std::collections::HashSet<&str> =
        before.nodes.iter().filter(|entry| entry.phase == OrderPhase::Failure).map(|entry| &*entry.node_name).collect();
    let new = after.nodes.iter().filter(|entry| entry.phase == OrderPhase::Failure && !old.contains(&*entry.node_name));
    said.extend(
        new.take(room).map(|entry| ("Warning", "NodeFailed", format!("node {}: {}", entry.node_name, entry.reason))),
    );
    if !before.is_final() {
        match after.phase {
            Some(JobPhase::Completed) => said.push(("Normal", "Completed", after.reason.clone())),
            Some(JobPhase::Failure) => said.push(("Warning", "Failed", after.reason.clone())),
            _ => {}
        }
    }
    said
}

/// Creates the events. A lost event does no harm: the status has the same information.
pub(super) async fn tell(requests: &Requests, job: &Job, before: &Status, after: &Status) {
    for (number, said) in between(before, after).into_iter().enumerate() {
        let (reason, message) = (said.1, said.2.clone());
        log::info!("{} {}: {reason}: {}", job.kind.name(), job.name, printable(&message));
        if let Err(error) = requests.create("/api/v1/namespaces/default/events", &event(job, said, number)).await {
            log::warn!("an event about {} {} was lost: {error}", job.kind.name(), job.name);
        }
    }
}

fn event(job: &Job, (kind, reason, message): Said, number: usize) -> Value {
    let now = Timestamp::now();
    // A name is a DNS name of at most 253 bytes, and so is that of the job.
    let name = format!("{}.{:x}", &job.name[..job.name.floor_char_boundary(200)], now.as_nanosecond() + number as i128);
    json!({
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"apiVersion": JOBS_API, "kind": job.kind.name(), "name": job.name, "uid": job.uid},
        "type": kind, "reason": reason, "message": &message[..message.floor_char_boundary(1024)],
        "source": {"component": "cloud-bridge"}, "count": 1,
        "firstTimestamp": now.to_string(), "lastTimestamp": now.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::status::Entry;
    use super::*;

    fn status(phase: JobPhase, reason: &str, failed: usize) -> Status {
        let nodes = (0..failed + 1).map(|number| match number {
            0 => Entry::new("first", OrderPhase::InProgress, ""),
            _ => Entry::new(&format!("n{number}"), OrderPhase::Failure, "disk"),
        });
        Status { phase: Some(phase), reason: reason.into(), nodes: nodes.collect() }
    }

    #[test]
    fn people_hear_of_what_matters_and_not_of_everything() {
        let reasons = |before: &Status, after: &Status| -> Vec<&'static str> {
            between(before, after).into_iter().map(|said| said.1).collect()
        };
        let (none, begun) = (Status::default(), status(JobPhase::InProgress, "r", 0));
        assert_eq!(reasons(&none, &begun), ["Started"]);
        assert!(reasons(&begun, &begun).is_empty());
        assert_eq!(reasons(&begun, &status(JobPhase::InProgress, "r", 2)), ["NodeFailed"; 2]);
        assert_eq!(reasons(&begun, &status(JobPhase::InProgress, "r", 500)).len(), MOST);
        assert!(reasons(&status(JobPhase::InProgress, "r", 11), &status(JobPhase::InProgress, "r", 12)).is_empty());
        assert_eq!(reasons(&begun, &status(JobPhase::Completed, "r", 0)), ["Completed"]);
        assert_eq!(reasons(&begun, &status(JobPhase::Failure, "r", 1)), ["NodeFailed", "Failed"]);
        assert_eq!(reasons(&none, &Status::failed("no version".into())), ["Failed"]);
        let held = status(JobPhase::Init, "1 held", 0);
        assert_eq!((reasons(&none, &held), reasons(&held, &held)), (vec!["Held"], vec![]));
    }
}
