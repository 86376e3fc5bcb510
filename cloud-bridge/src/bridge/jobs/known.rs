//! This bridge's knowledge of all jobs, with the round of the reading; the answers of nodes that are not written yet;
//! and the subscribers to changes.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use edge_protocol::message::OrderStatus;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::exceptions::Exceptions;
use super::index::{Found, Index};
use super::said;
use crate::bridge::informers::command::Command;
use crate::bridge::slim::SlimNode;
use crate::bridge::work_queue::Outcome;

/// Timeout for a requested reading.
const PATIENCE: Duration = Duration::from_secs(30);

/// Jobs as the tasks of a bridge share them.
pub(in crate::bridge) struct Jobs {
    state: Mutex<State>,
    informers: mpsc::UnboundedSender<Command>,
    /// Number of the newest requested reading of all jobs.
    asked: watch::Sender<u64>,
    /// Number of the newest complete one.
    read: watch::Sender<u64>,
    /// Notifies of changes that matter to jobs.
    stirred: watch::Sender<u64>,
    pub(super) nodes: Exceptions,
}

#[derive(Default)]
struct State {
    index: Index,
    /// The newest complete reading, whether or not the orders are known.
    reading: u64,
    /// Answers by job and node.
    said: HashMap<Box<str>, HashMap<Box<str>, Said>>,
}

/// Relation between a job and a node that reports about it.
#[derive(Debug, PartialEq, Eq)]
enum Concern {
    UnderWay,
    /// The job has ended, or the node has its verdict: the answer is no longer needed.
    Over,
    /// The node has no part in the job, or no order yet.
    NoOrder,
    /// The job does not exist.
    None,
}

/// The newest answer of a node, and the tasks that wait until it is written.
#[derive(Default)]
pub(super) struct Said {
    pub(super) status: OrderStatus,
    pub(super) waiting: Vec<oneshot::Sender<Outcome>>,
}

impl Jobs {
    pub(in crate::bridge) fn new(informers: mpsc::UnboundedSender<Command>) -> Self {
        Self {
            state: Mutex::default(),
            informers,
            asked: watch::Sender::new(1),
            read: watch::Sender::new(0),
            stirred: watch::Sender::new(0),
            nodes: Exceptions::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that everything is read again; returns the number of a reading that begins after this call.
    pub(in crate::bridge) fn ask(&self) -> u64 {
        let mut ticket = 0;
        self.asked.send_modify(|asked| {
            // A reading under way may have begun before this call, so another one is needed.
            *asked += 1;
            ticket = *asked;
        });
        ticket
    }

    pub(super) fn asked(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    /// Stores the state of a Node object.
    pub(in crate::bridge) fn node(&self, node: &SlimNode) {
        if self.nodes.see(node) {
            self.stir();
        }
    }

    /// Removes a deleted node.
    pub(in crate::bridge) fn forget(&self, node: &str) {
        self.nodes.set(node, false, false);
        self.stir();
    }

    /// Notifies that a node has connected or disconnected.
    pub(in crate::bridge) fn stir(&self) {
        self.stirred.send_modify(|count| *count += 1);
    }

    /// Receives notifications of changes that matter to jobs.
    pub(super) fn stirred(&self) -> watch::Receiver<u64> {
        self.stirred.subscribe()
    }

    /// Changes the state, and notifies the affected nodes. `read`: number of the complete reading of this change.
    pub(super) fn change<T>(&self, read: Option<u64>, change: impl FnOnce(&mut Index) -> T) -> T {
        let mut state = self.state();
        let before = state.index.revision();
        let result = change(&mut state.index);
        let stirred = state.index.revision() != before;
        let changed = state.index.take_changed();
        let groups: Vec<_> = changed.into_iter().map(|node| (String::from(&*node), state.index.group(&node))).collect();
        state.reading = read.map_or(state.reading, |read| read.max(state.reading));
        // A node that connects deletes orders that it does not receive, so it gets none before all are known.
        let newer = state.index.is_whole() && self.read.send_replace(state.reading) < state.reading;
        if newer || !groups.is_empty() {
            // Sent under the lock, so that messages keep the order of the changes.
            let _ = self.informers.send(Command::Orders { reading: *self.read.borrow(), changed: groups });
        }
        drop(state);
        if stirred || newer {
            self.stir();
        }
        result
    }

    pub(super) fn find(&self, uid: &str) -> Found {
        self.state().index.find(uid)
    }

    pub(super) fn live(&self) -> HashSet<Box<str>> {
        self.state().index.live().cloned().collect()
    }

    /// Answers of nodes for a job since the last call.
    pub(super) fn take_said(&self, uid: &str) -> HashMap<Box<str>, Said> {
        self.state().said.remove(uid).unwrap_or_default()
    }

    /// Restores answers that could not be written. Answers since then are newer.
    pub(super) fn put_back(&self, uid: &str, said: HashMap<Box<str>, Said>) {
        let mut state = self.state();
        let of_job = state.said.entry(uid.into()).or_default();
        for (node, old) in said {
            match of_job.get_mut(&node) {
                Some(newer) => newer.waiting.extend(old.waiting),
                None => drop(of_job.insert(node, old)),
            }
        }
    }

    /// Takes a node's answer to its order, and waits until it is in the API.
    pub(in crate::bridge) async fn report(&self, node: &str, uid: &str, status: &Value) -> Outcome {
        let status = match said::read(status) {
            Ok(status) => status,
            Err(why) => return Outcome::Refused(why),
        };
        let mut concern = self.concern(uid, node);
        if let Concern::None | Concern::NoOrder = concern {
            // The watch may be behind the writes of another bridge.
            if !self.read_again().await {
                return Outcome::Retry("jobs have not been read yet".to_owned());
            }
            concern = self.concern(uid, node);
        }
        match concern {
            Concern::Over | Concern::None => Outcome::Written,
            Concern::NoOrder => Outcome::Refused(format!("node {node} was given no order of this job")),
            Concern::UnderWay => {
                let written = self.say(node, uid, status).await;
                written.unwrap_or_else(|_| Outcome::Retry("nobody has written it".to_owned()))
            }
        }
    }

    /// Queues the newest answer of a node for the next write.
    pub(super) fn say(&self, node: &str, uid: &str, status: OrderStatus) -> oneshot::Receiver<Outcome> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        let said = state.said.entry(uid.into()).or_default().entry(node.into()).or_default();
        said.status = status;
        said.waiting.push(sender);
        drop(state);
        self.stir();
        receiver
    }

    fn concern(&self, uid: &str, node: &str) -> Concern {
        concern(&self.find(uid), node)
    }

    async fn read_again(&self) -> bool {
        let ticket = self.ask();
        let mut read = self.read.subscribe();
        timeout(PATIENCE, read.wait_for(|read| *read >= ticket)).await.is_ok_and(|read| read.is_ok())
    }
}

/// Tells all that wait what has become of these answers.
pub(super) fn answer(said: HashMap<Box<str>, Said>, outcome: &Outcome) {
    for sender in said.into_values().flat_map(|said| said.waiting) {
        // A node whose connection has ended answers again.
        let _ = sender.send(outcome.clone());
    }
}

fn concern(found: &Found, node: &str) -> Concern {
    let job = match found {
        Found::Live(job) => job,
        Found::Ended => return Concern::Over,
        Found::Unknown => return Concern::None,
    };
    match job.status.nodes.iter().find(|entry| *entry.node_name == *node) {
        Some(entry) if entry.is_under_way() => Concern::UnderWay,
        Some(entry) if entry.phase.is_final() => Concern::Over,
        _ => Concern::NoOrder,
    }
}

#[cfg(test)]
mod tests;
