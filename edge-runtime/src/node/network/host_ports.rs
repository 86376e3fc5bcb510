//! Which host ports are in the kernel, and which pods wait to have theirs there: one change at a time, so that a
//! refusal is about one pod. Pure; knows nothing of nft.

use std::collections::{BTreeMap, VecDeque};

use crate::pod::ports::{Forward, Protocol};

#[derive(Debug, Default)]
pub(in crate::node) struct HostPorts {
    /// By pod uid; no empty lists.
    held: BTreeMap<String, Vec<Forward>>,
    waiting: VecDeque<(String, Vec<Forward>)>,
    running: Option<(String, Vec<Forward>)>,
}

impl HostPorts {
    /// What is in the kernel already.
    pub(in crate::node) fn hold(&mut self, uid: &str, forwards: Vec<Forward>) {
        if forwards.is_empty() {
            self.held.remove(uid);
        } else {
            self.held.insert(uid.to_owned(), forwards);
        }
    }

    /// Whether exactly these are in the kernel, with no change under way.
    pub(in crate::node) fn has(&self, uid: &str, forwards: &[Forward]) -> bool {
        let mut changes = self.waiting.iter().chain(&self.running);
        self.held.get(uid).map_or(&[][..], Vec::as_slice) == forwards && !changes.any(|(other, _)| other == uid)
    }

    /// The pod's host ports of UDP in the kernel.
    pub(in crate::node) fn udp(&self, uid: &str) -> Vec<u16> {
        let held = self.held.get(uid).into_iter().flatten();
        held.filter(|forward| forward.port.protocol == Protocol::Udp).map(|forward| forward.port.port).collect()
    }

    /// From now on the pod is to have these; an order that has not begun is replaced.
    pub(in crate::node) fn want(&mut self, uid: &str, forwards: Vec<Forward>) {
        self.waiting.retain(|(other, _)| other != uid);
        self.waiting.push_back((uid.to_owned(), forwards));
    }

    /// Begins the next change, if none is under way: all forwards that the kernel is to have.
    pub(in crate::node) fn next(&mut self) -> Option<Vec<Forward>> {
        if self.running.is_some() {
            return None;
        }
        let (uid, forwards) = self.waiting.pop_front()?;
        let others = self.held.iter().filter(|(other, _)| **other != uid).flat_map(|(_, held)| held);
        let all = others.chain(&forwards).copied().collect();
        self.running = Some((uid, forwards));
        Some(all)
    }

    /// Ends the change under way; the pod it was for.
    pub(in crate::node) fn done(&mut self, applied: bool) -> Option<String> {
        let (uid, forwards) = self.running.take()?;
        if applied {
            self.hold(&uid, forwards);
        }
        Some(uid)
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
        assert_eq!(ports.next(), Some(vec![forward(1)]));
        assert_eq!(ports.next(), None, "one at a time");
        assert_eq!(ports.done(true).as_deref(), Some("a"));
        assert_eq!(ports.next(), Some(vec![forward(1), forward(2)]));
        assert_eq!(ports.done(false).as_deref(), Some("b"));
        assert!(ports.has("a", &[forward(1)]) && ports.has("b", &[]));
        ports.want("a", Vec::new());
        assert!(!ports.has("a", &[]), "not yet");
        assert_eq!(ports.next(), Some(Vec::new()));
        ports.done(true);
        assert!(ports.has("a", &[]));
    }

    #[test]
    fn a_new_order_replaces_one_that_has_not_begun() {
        let mut ports = HostPorts::default();
        ports.want("a", vec![forward(1)]);
        ports.want("a", vec![forward(2)]);
        assert_eq!(ports.next(), Some(vec![forward(2)]));
        ports.done(true);
        assert_eq!(ports.next(), None);
    }
}
