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
mod tests {
    use super::*;
    use crate::pod::ports::HostPort;

    fn forward(port: u16) -> Forward {
        let port = HostPort { ip: None, protocol: Protocol::Tcp, port, container_port: 80 };
        Forward { port, to: "10.0.0.2".parse().unwrap() }
    }

    #[test]
    fn a_refused_pod_leaves_the_others_rules() {
        let mut ports = HostPorts::default();
        ports.want("a", vec![forward(1)]);
        ports.want("b", vec![forward(2)]);
        assert_eq!(ports.next(), Some(vec![forward(1), forward(2)]));
        assert_eq!(ports.next(), None, "one at a time");
        assert_eq!(ports.done(false), [""; 0], "it may be about either");
        assert_eq!(ports.next(), Some(vec![forward(1)]));
        assert_eq!(ports.done(true), ["a"]);
        assert_eq!(ports.next(), Some(vec![forward(1), forward(2)]));
        assert_eq!(ports.done(false), ["b"]);
        assert!(ports.has("a", &[forward(1)]) && ports.has("b", &[]));
        ports.want("a", Vec::new());
        assert!(!ports.has("a", &[]), "not yet");
        assert_eq!(ports.next(), Some(Vec::new()));
        ports.done(true);
        assert!(ports.has("a", &[]));
    }

    #[test]
    fn pods_that_wait_share_one_run() {
        let (mut ports, mut runs) = (HostPorts::default(), 0);
        (1..=50).for_each(|n| ports.want(&format!("pod-{n}"), vec![forward(n)]));
        let mut known = Vec::new();
        while ports.next().is_some() {
            runs += 1;
            known.extend(ports.done(true));
        }
        assert_eq!((runs, known.len()), (1, 50));
        assert!(ports.has("pod-50", &[forward(50)]));
    }

    #[test]
    fn refused_pod_among_many_is_found() {
        let (mut ports, mut runs) = (HostPorts::default(), 0);
        (1..=50).for_each(|n| ports.want(&format!("pod-{n}"), vec![forward(n)]));
        let mut refused = Vec::new();
        while let Some(all) = ports.next() {
            runs += 1;
            let applied = !all.contains(&forward(30));
            let told = ports.done(applied);
            refused.extend(told.into_iter().filter(|_| !applied));
        }
        assert_eq!(refused, ["pod-30"]);
        assert!((1..=50).filter(|n| *n != 30).all(|n| ports.has(&format!("pod-{n}"), &[forward(n)])));
        assert!(runs < 25, "{runs}");
    }

    #[test]
    fn an_order_that_came_amid_a_refused_change_stays_the_newest() {
        let mut ports = HostPorts::default();
        ports.want("a", vec![forward(1)]);
        ports.want("b", vec![forward(2)]);
        ports.next();
        ports.want("a", Vec::new());
        assert_eq!(ports.done(false), [""; 0]);
        assert_eq!(ports.next(), Some(vec![forward(2)]));
        assert_eq!(ports.done(true), ["b", "a"], "nothing of a is there");
        assert_eq!(ports.next(), None);
    }

    #[test]
    fn no_pod_is_let_in_before_the_loopback_is_guarded() {
        let mut ports = HostPorts::default();
        ports.hold("old", vec![forward(1)]);
        assert_eq!(ports.begin(), [forward(1)]);
        assert!(ports.has("a", &[]) && !ports.lets_in("a", &[]));
        ports.want("a", Vec::new());
        ports.want("b", vec![forward(2)]);
        ports.want("c", Vec::new());
        assert_eq!(ports.next(), None, "the start is under way");
        assert_eq!(ports.done(false), ["a", "c"], "told that it failed");
        assert!(!ports.lets_in("a", &[]));
        assert_eq!(ports.next(), Some(vec![forward(1), forward(2)]));
        ports.want("a", Vec::new());
        assert_eq!(ports.done(true), ["b", "a"]);
        assert!(ports.lets_in("a", &[]) && ports.lets_in("b", &[forward(2)]) && ports.lets_in("old", &[forward(1)]));
    }

    #[test]
    fn refused_renewal_is_due_again_until_the_kernel_takes_the_rules() {
        let mut ports = HostPorts::default();
        ports.begin();
        ports.done(false);
        assert!(!ports.is_stale(), "the first pod writes all of it");
        ports.begin();
        ports.done(true);
        ports.renew();
        assert_eq!(ports.next(), Some(Vec::new()));
        ports.done(false);
        assert!(ports.is_stale());
        assert_eq!(ports.next(), None, "not at once");
        ports.renew();
        assert_eq!(ports.next(), Some(Vec::new()));
        assert!(!ports.is_stale(), "it is under way");
        ports.done(false);
        ports.want("a", vec![forward(1)]);
        assert_eq!(ports.next(), Some(vec![forward(1)]));
        assert_eq!(ports.done(false), ["a"]);
        assert!(ports.is_stale(), "neither is in the kernel");
        ports.want("b", vec![forward(2)]);
        assert_eq!(ports.next(), Some(vec![forward(2)]));
        assert_eq!(ports.done(true), ["b"]);
        assert!(!ports.is_stale(), "a pod's change has written all rules");
    }

    #[test]
    fn renewal_amid_a_change_follows_it() {
        let mut ports = HostPorts::default();
        ports.renew();
        assert_eq!(ports.next(), None, "there is nothing to renew yet");
        ports.begin();
        ports.renew();
        assert_eq!(ports.next(), None, "the first change is under way");
        ports.done(true);
        assert_eq!(ports.next(), Some(Vec::new()));
        ports.done(true);
        assert_eq!(ports.next(), None, "once");
        assert_eq!(ports.done(true), [""; 0], "no change was under way");
    }

    #[test]
    fn newer_forwards_replace_waiting_ones() {
        let mut ports = HostPorts::default();
        ports.want("a", vec![forward(1)]);
        ports.want("a", vec![forward(2)]);
        assert_eq!(ports.next(), Some(vec![forward(2)]));
        ports.done(true);
        assert_eq!(ports.next(), None);
    }
}
