//! Order in which a node's reports are written: those of one object one after the other, those of different objects and
//! different events at the same time; a newer status replaces one that waits. Pure.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use edge_protocol::message::Report;

use sampan_log::printable::printable;

/// First pause after a failed attempt; doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(20);
/// Pause after a second conflict, doubled up to [`MAX_PAUSE`]; the first one is retried at once (client-go
/// `workqueue.DefaultTypedControllerRateLimiter`, `retry.DefaultRetry`).
const CONFLICT_PAUSE: Duration = Duration::from_millis(5);
/// Pause after the API refused for a reason that an administrator may fix, doubled up to the second value.
const REFUSED_PAUSE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(300));
/// Maximum number of reports of one node that are retried after a refusal. They take room of its window; beyond it a
/// refusal is final.
const MOST_REFUSED: usize = 16;

/// Maximum length of an event's reason in characters (K8s pkg/apis/core/validation, `ReasonLengthLimit`).
const REASON_MAX: usize = 128;

/// Key of reports that must stay in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Status and end of a pod, by uid.
    Pod(String),
    /// The node's own object.
    Node,
    /// The node's CSI drivers. Apart from its object: a missing right to write them must not hold that one.
    Csi,
    /// Events about one object for one reason, by its uid and the reason: repetitions are counted. Others share a sync of
    /// the API's disk.
    Events(String, String),
    /// The mirror of a static pod, by its name.
    Mirror(String),
    /// The result of a job, by its uid.
    Order(String),
}

impl Lane {
    fn of(report: &Report) -> Self {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        match report {
            Report::PodStatus { uid, .. } | Report::PodGone { uid, .. } => Self::Pod(uid.clone()),
            Report::Event { event } => {
                // No reason is longer; a node may send any.
                let reason = event["reason"].as_str().unwrap_or_default().chars().take(REASON_MAX).collect();
                Self::Events(text(&event["involvedObject"]["uid"]), reason)
            }
            Report::MirrorPod { pod } => {
                Self::Mirror(format!("{}/{}", text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"])))
            }
            Report::MirrorGone { namespace, name, .. } => Self::Mirror(format!("{namespace}/{name}")),
            Report::Order { job, .. } => Self::Order(job.clone()),
            Report::CsiNode { .. } => Self::Csi,
            Report::Node { .. } | Report::Unknown => Self::Node,
        }
    }
}

/// Result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The report, or a newer state, is in the API.
    Written,
    /// It is refused permanently: the reason is for users.
    Refused(String),
    /// The API did not answer, or is overloaded.
    Retry(String),
    /// Another client changed the object during the attempt. The next one begins with its present state.
    Conflict(String),
    /// The API refused it because of a policy or a right that an administrator may fix.
    Later(String),
}

impl Outcome {
    /// Reason why the report is not in the API.
    pub fn problem(&self) -> Option<&str> {
        match self {
            Self::Written => None,
            Self::Refused(why) | Self::Retry(why) | Self::Conflict(why) | Self::Later(why) => Some(why),
        }
    }
}

/// One attempt to be made after a pause.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    pub lane: Lane,
    pub report: Report,
    pub pause: Duration,
}

/// Answer to the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Reported(u64),
    Refused(u64, String),
}

/// The reports of one node that are not in the API yet.
#[derive(Debug, Default)]
pub struct WorkQueue {
    work_queue: HashMap<Lane, Waiting>,
    ready: VecDeque<Lane>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Ids of the reports that the attempt under way writes.
    running: Option<Vec<u64>>,
    queue: VecDeque<(Vec<u64>, Report)>,
    failures: u32,
    /// Number of successive conflicts.
    conflicts: u32,
    /// Number of successive refusals.
    refusals: u32,
}

impl WorkQueue {
    /// Adds a report.
    pub fn push(&mut self, id: u64, report: Report) {
        let lane = Lane::of(&report);
        let waiting = self.work_queue.entry(lane.clone()).or_default();
        match waiting.queue.back_mut() {
            Some((ids, last)) if replaces(&report, last) => {
                ids.push(id);
                *last = report;
            }
            _ => waiting.queue.push_back((vec![id], report)),
        }
        if waiting.running.is_none() && !self.ready.contains(&lane) {
            self.ready.push_back(lane);
        }
    }

    /// The next attempt to start. Each must be ended by [`finish`](Self::finish).
    pub fn begin(&mut self) -> Option<Attempt> {
        let lane = self.ready.pop_front()?;
        let waiting = self.work_queue.get_mut(&lane)?;
        let (ids, report) = waiting.queue.pop_front()?;
        waiting.running = Some(ids);
        let grown = |first: Duration, times: u32, most: Duration| match times {
            0 => Duration::ZERO,
            n => first.saturating_mul(1 << (n - 1).min(16)).min(most),
        };
        let refused = grown(REFUSED_PAUSE.0, waiting.refusals, REFUSED_PAUSE.1);
        let conflicted = grown(CONFLICT_PAUSE, waiting.conflicts.saturating_sub(1), MAX_PAUSE);
        let pause = grown(FIRST_PAUSE, waiting.failures, MAX_PAUSE).max(conflicted).max(refused);
        Some(Attempt { lane, report, pause })
    }

    /// Ends an attempt.
    pub fn finish(&mut self, attempt: Attempt, outcome: Outcome) -> Vec<Answer> {
        let Attempt { lane, report, .. } = attempt;
        let refused = self.work_queue.values().filter(|waiting| waiting.refusals > 0).count();
        let Some(waiting) = self.work_queue.get_mut(&lane) else { return Vec::new() };
        let mut ids = waiting.running.take().unwrap_or_default();
        let answers = match &outcome {
            Outcome::Written => ids.into_iter().map(Answer::Reported).collect(),
            Outcome::Refused(reason) => ids.into_iter().map(|id| Answer::Refused(id, reason.clone())).collect(),
            Outcome::Later(reason) if waiting.refusals == 0 && refused >= MOST_REFUSED => {
                ids.into_iter().map(|id| Answer::Refused(id, reason.clone())).collect()
            }
            Outcome::Retry(_) | Outcome::Conflict(_) | Outcome::Later(_) => {
                let count = match outcome {
                    Outcome::Later(_) => &mut waiting.refusals,
                    Outcome::Conflict(_) => &mut waiting.conflicts,
                    _ => &mut waiting.failures,
                };
                *count = count.saturating_add(1);
                match waiting.queue.front_mut() {
                    Some((newer_ids, newer)) if replaces(newer, &report) => {
                        ids.append(newer_ids);
                        *newer_ids = ids;
                    }
                    _ => waiting.queue.push_front((ids, report)),
                }
                self.ready.push_back(lane);
                return Vec::new();
            }
        };
        (waiting.failures, waiting.conflicts, waiting.refusals) = (0, 0, 0);
        if waiting.queue.is_empty() {
            self.work_queue.remove(&lane);
            if self.work_queue.is_empty() {
                // An idle node keeps no capacity for them.
                (self.work_queue, self.ready) = Default::default();
            }
        } else {
            self.ready.push_back(lane);
        }
        answers
    }
}

/// Whether the newer report makes the older one with the same key unnecessary.
fn replaces(newer: &Report, older: &Report) -> bool {
    matches!(
        (newer, older),
        (Report::PodStatus { .. }, Report::PodStatus { .. })
            | (Report::Node { .. }, Report::Node { .. })
            | (Report::Order { .. }, Report::Order { .. })
            | (Report::CsiNode { .. }, Report::CsiNode { .. })
    )
}

/// A report in few words, for the log.
pub fn describe(report: &Report) -> String {
    let words = match report {
        Report::PodStatus { namespace, name, .. } => format!("status of pod {namespace}/{name}"),
        Report::PodGone { namespace, name, .. } => format!("end of pod {namespace}/{name}"),
        Report::Node { .. } => "node object".to_owned(),
        Report::Event { event } => format!(
            "event {} of {}/{}",
            event["reason"].as_str().unwrap_or_default(),
            event["involvedObject"]["namespace"].as_str().unwrap_or_default(),
            event["involvedObject"]["name"].as_str().unwrap_or_default()
        ),
        Report::MirrorPod { pod } => format!("mirror of {}", pod["metadata"]["name"].as_str().unwrap_or_default()),
        Report::MirrorGone { namespace, name, .. } => format!("end of mirror {namespace}/{name}"),
        Report::Order { job, .. } => format!("progress of job {job}"),
        Report::CsiNode { .. } => "CSI drivers".to_owned(),
        Report::Unknown => "unknown report".to_owned(),
    };
    printable(words).to_string()
}

#[cfg(test)]
mod tests;
