//! The status of a job: each node's part of it, their numbers, in words, and within the size that an API keeps. Pure.

use std::collections::BTreeMap;

use edge_protocol::message::{ActionStep, ImageStatus, OrderPhase, waits_for_confirmation, waits_for_turn};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Maximum size of a job's nodes as JSON, in bytes. An API server keeps objects up to 1.5 MB; the spec, which may name
/// all nodes, is not included here.
const MOST: usize = 900_000;
/// Bytes of all nodes that have nothing but a name and a phase: what is left is for those under way and those that failed.
const MOST_NAMES: usize = 700_000;
/// Bytes of an entry besides its name: braces, quotes, names of fields, the longest phase.
const AROUND: usize = 38;

/// How a node that is waited for no longer ended, and how such reasons end.
pub(super) const UNTIL: &str = "until the deadline";
/// Its Node object is gone.
pub(super) const DELETED: &str = "the node was deleted";

/// How far a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum JobPhase {
    /// Nothing has begun, or no bridge has seen it.
    #[default]
    Init,
    InProgress,
    Completed,
    Failure,
    /// A phase that this program does not write.
    #[serde(other)]
    Unknown,
}

/// One node's part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Entry {
    pub(super) node_name: Box<str>,
    pub(super) phase: OrderPhase,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) reason: Box<str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) action_flow: Vec<ActionStep>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) current_version: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) historic_version: Box<str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) image_status: Vec<ImageStatus>,
}

impl Entry {
    pub(super) fn new(node: &str, phase: OrderPhase, reason: &str) -> Self {
        Self { node_name: node.into(), phase, reason: reason.into(), ..Self::default() }
    }

    /// It has its order, and no verdict.
    pub(super) fn is_under_way(&self) -> bool {
        matches!(self.phase, OrderPhase::InProgress | OrderPhase::Unknown)
    }

    /// It tried and failed, or cannot; not if it could not be asked.
    pub(super) fn has_failed(&self) -> bool {
        self.phase == OrderPhase::Failure && !self.reason.ends_with(UNTIL) && *self.reason != *DELETED
    }

    /// It waits for a user's confirmation.
    pub(super) fn waits_for_confirmation(&self) -> bool {
        waits_for_confirmation(&self.action_flow)
    }

    /// It waits on the node for the end of other orders.
    pub(super) fn waits_for_turn(&self) -> bool {
        waits_for_turn(&self.action_flow)
    }

    /// The node does nothing for now, so the time of its work does not run.
    pub(super) fn waits_for_others(&self) -> bool {
        self.waits_for_confirmation() || self.waits_for_turn()
    }

    /// Leaves the phase and little of its reason. One that waits stays so: without that its time would run.
    fn shorten(&mut self) {
        let waits = self.is_under_way() && self.waits_for_others();
        let last = self.action_flow.pop().filter(|_| waits);
        self.reason = if waits { "".into() } else { shortened(&self.reason).into() };
        self.action_flow =
            last.map(|step| ActionStep { action: step.action, ..ActionStep::default() }).into_iter().collect();
        self.image_status = Vec::new();
    }

    fn size(&self) -> usize {
        let steps = self.action_flow.iter().map(|step| step.action.len() + step.reason.len() + step.time.len() + 60);
        let images = self.image_status.iter().map(|image| image.image.len() + image.reason.len() + 50);
        let texts = self.reason.len() + self.current_version.len() + self.historic_version.len() + 60;
        AROUND + self.node_name.len() + texts + steps.sum::<usize>() + images.sum::<usize>()
    }
}

/// How many nodes are how far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Counts {
    pub(super) total: usize,
    pub(super) pending: usize,
    pub(super) in_progress: usize,
    pub(super) successful: usize,
    pub(super) failure: usize,
    /// Nodes that fell silent at work.
    pub(super) unknown: usize,
}

/// A job's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    /// `None` before a bridge has seen the job.
    pub(super) phase: Option<JobPhase>,
    pub(super) reason: String,
    pub(super) nodes: Vec<Entry>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Read {
    phase: Option<JobPhase>,
    reason: Option<String>,
    node_status: Option<Vec<Entry>>,
}

impl Status {
    /// `None` for a malformed status.
    pub(super) fn read(value: &Value) -> Option<Self> {
        if value.is_null() {
            return Some(Self::default());
        }
        let read = Read::deserialize(value).ok()?;
        Some(Self {
            phase: read.phase,
            reason: read.reason.unwrap_or_default(),
            nodes: read.node_status.unwrap_or_default(),
        })
    }

    /// One that has ended before it began.
    pub(super) fn failed(reason: String) -> Self {
        Self { phase: Some(JobPhase::Failure), reason, nodes: Vec::new() }
    }

    /// Nothing more comes of it.
    pub(super) fn is_final(&self) -> bool {
        matches!(self.phase, Some(JobPhase::Completed | JobPhase::Failure))
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts { total: self.nodes.len(), ..Counts::default() };
        for entry in &self.nodes {
            *match entry.phase {
                OrderPhase::Pending => &mut counts.pending,
                OrderPhase::InProgress => &mut counts.in_progress,
                OrderPhase::Successful => &mut counts.successful,
                OrderPhase::Failure => &mut counts.failure,
                OrderPhase::Unknown => &mut counts.unknown,
            } += 1;
        }
        counts
    }

    /// The merge patch that makes it so, on this version of the object.
    pub(super) fn patch(&self, version: &str) -> Value {
        json!({"metadata": {"resourceVersion": version}, "status": {
            "phase": self.phase.unwrap_or_default(), "reason": self.reason, "counts": self.counts(),
            "nodeStatus": self.nodes,
        }})
    }

    /// Bytes of it as JSON, roughly.
    pub(super) fn size(&self) -> usize {
        self.nodes.iter().map(Entry::size).sum()
    }

    /// Removes what does not fit: first how nodes succeeded, then how others failed, then the progress of those in
    /// progress. The phase of each node always stays.
    pub(super) fn fit(&mut self) {
        self.fit_into(MOST);
    }

    fn fit_into(&mut self, most: usize) {
        let mut size = self.size();
        let order = [
            OrderPhase::Successful,
            OrderPhase::Pending,
            OrderPhase::Failure,
            OrderPhase::Unknown,
            OrderPhase::InProgress,
        ];
        for phase in order {
            for entry in self.nodes.iter_mut().filter(|entry| entry.phase == phase) {
                if size <= most {
                    return;
                }
                size -= entry.size();
                entry.shorten();
                size += entry.size();
            }
        }
    }
}

/// A reason of which little is left.
fn shortened(reason: &str) -> &str {
    const SHORT: usize = 40;
    // The end says whether it counts as a failure.
    if reason.ends_with(UNTIL) { reason } else { &reason[..reason.floor_char_boundary(SHORT)] }
}

/// Whether there is room for the status of a job of these nodes.
///
/// # Errors
/// What to do instead.
pub(super) fn has_room(names: &BTreeMap<String, bool>) -> Result<(), String> {
    let size: usize = names.keys().map(|name| name.len() + AROUND).sum();
    if size > MOST_NAMES {
        let why = format!("it means {} nodes, more than the status of one object has room for", names.len());
        return Err(format!("{why}: make several jobs of it"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
