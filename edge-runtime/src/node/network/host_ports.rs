//! Which host ports are in the kernel, and which pods wait for them. One change at a time, for all pods that wait.
//! After a refusal it tries half of them, until one pod is isolated. Pure; does not know nft.

use std::collections::VecDeque;

use crate::pod::ports::{Forward, Protocol};
use crate::sys::vec_map::VecMap;

#[derive(Debug, Default)]
pub(in super::super) struct HostPorts {
    /// Rules of this daemon are in the kernel. Before that no pod is connected.
    guarded: bool,
    /// Forwards by pod uid; no empty lists.
    held: VecMap<String, Vec<Forward>>,
    waiting: VecDeque<(String, Vec<Forward>)>,
    /// Maximum number of pods in the next change.
    limit: Option<usize>,
    /// All rules must be written again: something else in them has changed.
    again: bool,
    /// The last attempt at that has failed.
    stale: bool,
    running: Option<Change>,
}

#[derive(Debug)]
enum Change {
    /// All forwards, not for a particular pod.
    All,
    Pods(Vec<(String, Vec<Forward>)>),
}

impl HostPorts {
    /// Records forwards that are already in the kernel.
    pub(in super::super) fn hold(&mut self, uid: &str, forwards: Vec<Forward>) {
        if forwards.is_empty() {
            self.held.remove(uid);
        } else {
            self.held.insert(uid.to_owned(), forwards);
        }
    }

    /// Whether exactly these are in the kernel, with no change under way.
    pub(in super::super) fn has(&self, uid: &str, forwards: &[Forward]) -> bool {
        let is_it = |(other, _): &(String, Vec<Forward>)| other == uid;
        let running = matches!(&self.running, Some(Change::Pods(pods)) if pods.iter().any(is_it));
        let waiting = self.waiting.iter().any(is_it);
        self.held(uid) == forwards && !running && !waiting
    }

    /// Same as [`HostPorts::has`], for a pod that is about to be connected: the node's loopback is guarded, too.
    pub(in super::super) fn lets_in(&self, uid: &str, forwards: &[Forward]) -> bool {
        self.guarded && self.has(uid, forwards)
    }

    fn held(&self, uid: &str) -> &[Forward] {
        self.held.get(uid).map_or(&[], Vec::as_slice)
    }

    /// The pod's host ports of UDP in the kernel.
    pub(in super::super) fn udp(&self, uid: &str) -> Vec<u16> {
        let held = self.held.get(uid).into_iter().flatten();
        held.filter(|forward| forward.port.protocol == Protocol::Udp).map(|forward| forward.port.port).collect()
    }

    /// From now on the pod is to have these; an order that has not started is replaced.
    pub(in super::super) fn want(&mut self, uid: &str, forwards: Vec<Forward>) {
        self.waiting.retain(|(other, _)| other != uid);
        self.waiting.push_back((uid.to_owned(), forwards));
    }

    /// Requests that everything is written again, after the change in progress. Does nothing before the first change.
    pub(in super::super) fn renew(&mut self) {
        self.again = self.guarded || self.running.is_some();
    }

    /// Whether the kernel has refused rules that [`HostPorts::renew`] asked for, so that they must be renewed again later.
    pub(in super::super) fn is_stale(&self) -> bool {
        self.stale && self.running.is_none()
    }

    /// Begins the daemon's first change: all forwards that the kernel is to have.
    pub(in super::super) fn begin(&mut self) -> Vec<Forward> {
        self.running = Some(Change::All);
        self.again = false;
        self.held.values().flatten().copied().collect()
    }

    /// Begins the next change, if none is under way: all forwards that the kernel is to have.
    pub(in super::super) fn next(&mut self) -> Option<Vec<Forward>> {
        if self.running.is_some() {
            return None;
        }
        if self.again {
            return Some(self.begin());
        }
        if self.waiting.is_empty() {
            return None;
        }
        let count = self.limit.unwrap_or(usize::MAX).min(self.waiting.len());
        let pods: Vec<_> = self.waiting.drain(..count).collect();
        let is_other = |uid: &String| pods.iter().all(|(changed, _)| changed != uid);
        let others = self.held.iter().filter(|(uid, _)| is_other(uid)).flat_map(|(_, held)| held);
        let all = others.chain(pods.iter().flat_map(|(_, forwards)| forwards)).copied().collect();
        self.running = Some(Change::Pods(pods));
        Some(all)
    }

    /// Whether a change is under way.
    pub(in super::super) fn is_changing(&self) -> bool {
        self.running.is_some()
    }

    /// Whether the kernel has rules of this daemon, for all that it knows.
    pub(in super::super) fn is_there(&self) -> bool {
        self.guarded
    }

    /// Ends the change under way; the pods it was for. Those are among them that waited for the guard alone.
    pub(in super::super) fn done(&mut self, applied: bool) -> Vec<String> {
        let mut pods = Vec::new();
        match self.running.take() {
            None => return pods,
            // One of them may be the cause: the others must still get their ports.
            Some(Change::Pods(refused)) if !applied && refused.len() > 1 => {
                self.limit = Some(refused.len().div_ceil(2));
                for (uid, forwards) in refused.into_iter().rev() {
                    if self.waiting.iter().all(|(other, _)| *other != uid) {
                        self.waiting.push_front((uid, forwards));
                    }
                }
                return pods;
            }
            Some(Change::Pods(changed)) => {
                for (uid, forwards) in changed {
                    if applied {
                        self.hold(&uid, forwards);
                    }
                    pods.push(uid);
                }
            }
            Some(Change::All) => self.stale = self.guarded,
        }
        if applied {
            // Each change writes all rules.
            self.stale = false;
            self.limit = self.limit.map(|limit| limit.saturating_mul(2));
        }
        self.guarded |= applied;
        let waiting = std::mem::take(&mut self.waiting);
        let (same, other) = waiting.into_iter().partition(|(uid, forwards)| self.held(uid) == forwards);
        self.waiting = other;
        let same: VecDeque<(String, Vec<Forward>)> = same;
        pods.extend(same.into_iter().map(|(uid, _)| uid));
        pods
    }
}

#[cfg(test)]
mod tests;
