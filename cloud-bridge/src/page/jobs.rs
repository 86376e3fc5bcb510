//! Fleet jobs (operations.kubeedge.io) as the page shows them: read from the API on request, once for all requests
//! within a few seconds. Shows only the progress of a job, not its content.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::board::cut;

const API: &str = "/apis/operations.kubeedge.io/v1alpha2";
const KINDS: [(&str, &str); 3] = [
    ("NodeUpgradeJob", "nodeupgradejobs"),
    ("ImagePrePullJob", "imageprepulljobs"),
    ("ConfigUpdateJob", "configupdatejobs"),
];
/// Lifetime of an answer.
const FRESH: Duration = Duration::from_secs(3);
/// Jobs of each kind, nodes of each job that are named, and bytes of any text.
const MOST: (usize, usize, usize) = (100, 50, 300);
/// Phases of nodes, as counts in a job's status name them and as its nodes do.
const PHASES: [(&str, &str); 5] = [
    ("pending", "Pending"),
    ("inProgress", "InProgress"),
    ("successful", "Successful"),
    ("failure", "Failure"),
    ("unknown", "Unknown"),
];

#[derive(Default)]
pub(super) struct Jobs(Mutex<Option<(Instant, Bytes)>>);

impl Jobs {
    /// All jobs, newest first, as JSON.
    ///
    /// # Errors
    /// The API does not answer, or refuses.
    pub(super) async fn read(&self, client: &Client) -> kube::Result<Bytes> {
        let mut kept = self.0.lock().await;
        if let Some((_, text)) = kept.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Ok(text.clone());
        }
        let mut all = Vec::new();
        for (kind, plural) in KINDS {
            all.extend(list(client, plural).await?.iter().map(|job| shown(kind, job)));
        }
        all.sort_by_key(|job| std::cmp::Reverse(job["created"].as_str().map(str::to_owned)));
        let text = Bytes::from(json!({ "jobs": all }).to_string());
        *kept = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

/// Empty where the API has no such kind.
async fn list(client: &Client, plural: &str) -> kube::Result<Vec<Value>> {
    let request = Request::get(format!("{API}/{plural}?limit={}", MOST.0)).body(Vec::new());
    let request = request.map_err(kube::Error::HttpError)?;
    match client.request::<Value>(request).await {
        Ok(mut list) => Ok(list.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn shown(kind: &str, job: &Value) -> Value {
    let (status, meta) = (&job["status"], &job["metadata"]);
    // Of an ImagePrePullJob it is one level down.
    let spec = job["spec"].get("imagePrePullTemplate").unwrap_or(&job["spec"]);
    let nodes = || status["nodeStatus"].as_array().into_iter().flatten();
    let counted = |name: &str, phase: &str| {
        let own = || nodes().filter(|node| node["phase"] == phase).count() as u64;
        status["counts"][name].as_u64().unwrap_or_else(own)
    };
    let total = status["counts"]["total"].as_u64().unwrap_or_else(|| nodes().count() as u64);
    let mut open: Vec<&Value> = nodes().filter(|node| urgency(node).is_some()).collect();
    open.sort_by_key(|node| urgency(node));
    let named =
        open.iter().take(MOST.1).map(|node| json!([text(&node["nodeName"]), text(&node["phase"]), reason(node)]));
    json!({
        "kind": kind,
        "name": text(&meta["name"]),
        "created": text(&meta["creationTimestamp"]),
        "phase": text(&status["phase"]),
        "reason": text(&status["reason"]),
        // The bridge takes 1 for less (bridge/jobs/view.rs).
        "atOnce": spec["concurrency"].as_u64().unwrap_or(1).max(1),
        "total": total,
        "counts": PHASES.map(|(name, phase)| counted(name, phase)),
        "nodes": named.collect::<Vec<_>>(),
        "more": open.len().saturating_sub(MOST.1),
    })
}

/// Rank of a node in the list of its job, the most urgent first; `None` for one that has succeeded, which is not listed.
fn urgency(node: &Value) -> Option<u8> {
    match node["phase"].as_str()? {
        "Successful" => None,
        "Failure" => Some(0),
        "InProgress" => Some(2),
        "Pending" => Some(3),
        _ => Some(1),
    }
}

/// The node's own, or what its last action said.
fn reason(node: &Value) -> &str {
    let own = text(&node["reason"]);
    let last = || node["actionFlow"].as_array().and_then(|flow| flow.last()).map(|action| text(&action["reason"]));
    if own.is_empty() { last().unwrap_or_default() } else { own }
}

fn text(value: &Value) -> &str {
    cut(value.as_str().unwrap_or_default(), MOST.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_counted_and_its_troubles_are_named() {
        let node = |name: &str, phase: &str, reason: &str| json!({"nodeName": name, "phase": phase, "actionFlow": [{"action": "Check", "reason": reason}]});
        let job = json!({"metadata": {"name": "up", "creationTimestamp": "2026-03-01T10:00:00Z"}, "status": {
            "phase": "InProgress",
            "nodeStatus": [node("a", "Successful", ""), node("b", "Failure", "<b>no link"), node("c", "Pending", "")]}});
        let seen = shown("NodeUpgradeJob", &job);
        assert_eq!((&seen["total"], &seen["counts"]), (&json!(3), &json!([1, 0, 1, 1, 0])));
        assert_eq!(seen["nodes"], json!([["b", "Failure", "<b>no link"], ["c", "Pending", ""]]));
        let many: Vec<Value> =
            (0..MOST.1).map(|_| node("p", "Pending", "")).chain([node("f", "Failure", "")]).collect();
        let seen = shown("NodeUpgradeJob", &json!({"metadata": {"name": "up"}, "status": {"nodeStatus": many}}));
        assert_eq!((&seen["nodes"][0][0], &seen["more"]), (&json!("f"), &json!(1)), "failures come first");
        let counts = json!({"metadata": {"name": "up"}, "status": {"counts": {"total": 5000, "successful": 4000}}});
        let seen = shown("NodeUpgradeJob", &counts);
        assert_eq!((&seen["total"], &seen["counts"][2]), (&json!(5000), &json!(4000)));
        assert_eq!(shown("X", &json!(7))["nodes"], json!([]), "nonsense is nothing");
    }

    #[test]
    fn number_of_nodes_at_once_is_that_of_the_job() {
        let of = |spec: Value| shown("X", &json!({"metadata": {"name": "up"}, "spec": spec}))["atOnce"].clone();
        assert_eq!(
            [of(json!({"concurrency": 50})), of(json!({"concurrency": -3})), of(json!({}))],
            [json!(50), json!(1), json!(1)]
        );
        assert_eq!(of(json!({"imagePrePullTemplate": {"concurrency": 7}})), json!(7));
    }
}
