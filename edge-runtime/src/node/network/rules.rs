//! Rules for pods in the kernel: one run of `nft` at a time, and which pods its result is for.

use super::connecting::Answer;
use crate::config::NetworkMode;
use crate::net::netlink::conntrack;
use crate::node::Node;
use crate::node::sources::News;
use crate::pod::event::PodEvent;
use crate::pod::ports::{Forward, forwards};
use crate::pod::record::SandboxState;

impl Node {
    /// The next set of rules that is wanted, one at a time.
    pub(in crate::node) fn replace_rules(&mut self) {
        let Some(forwards) = self.host_ports.next() else { return };
        let rules = self.launch.sandboxes.teardown.network.firewall(&forwards);
        self.cx.background(async move { News::RulesReplaced(rules.apply().await.map_err(|error| error.to_string())) });
    }

    pub(in crate::node) fn rules_replaced(&mut self, result: Result<(), String>) {
        let done = self.host_ports.done(result.is_ok());
        self.replace_rules();
        done.into_iter().for_each(|uid| self.rules_done(uid, result.clone()));
    }

    fn rules_done(&mut self, uid: String, result: Result<(), String>) {
        let datagrams = self.host_ports.udp(&uid);
        if datagrams.is_empty() {
            return self.rules_known(uid, result);
        }
        self.cx.background(async move {
            if let Err(error) = conntrack::forget_udp(&datagrams).await {
                log::warn!("pod {uid}: clients that never pause may miss its new UDP host ports: {error}");
            }
            News::PortsForgotten { uid, result }
        });
    }

    pub(in crate::node) fn rules_known(&mut self, uid: String, result: Result<(), String>) {
        if self.connecting.contains_key(&uid) {
            return self.connection_answered(&uid, Answer::Rules(result));
        }
        let answer = match result {
            Ok(()) => self.remove_sandbox(&uid),
            Err(message) => Some(PodEvent::TeardownFailed { message }),
        };
        self.answered(&uid, answer);
    }

    /// Writes the rules of all pods whose sandbox exists, at the start. New pods wait for them.
    pub(in crate::node) fn rules_at_start(&mut self) {
        for (uid, entry) in self.cx.pods.iter() {
            let ready = matches!(entry.record.sandbox.state, SandboxState::Ready { .. });
            if ready && self.launch.sandboxes.exists(&entry.pod) && !self.launch.sandboxes.teardown.is_attached(uid) {
                self.host_ports.hold(uid, forwards(&entry.pod, &entry.record.ips));
            }
        }
        let all = self.host_ports.begin();
        if self.cx.config.network.mode == NetworkMode::Cni && all.is_empty() {
            self.host_ports.done(false);
            return;
        }
        self.replace_all_rules(&all);
    }

    /// They are gone, and no change is under way: all that is held is put back.
    pub(in crate::node) fn rules_lost(&mut self) {
        let all = self.host_ports.begin();
        self.replace_all_rules(&all);
    }

    fn replace_all_rules(&self, all: &[Forward]) {
        let rules = self.launch.sandboxes.teardown.network.firewall_at_start(all);
        self.cx.background(async move {
            let result = rules.await;
            if let Err(error) = &result {
                log::warn!("no pod with a network of its own can start: {error}");
            }
            News::RulesReplaced(result.map_err(|error| error.to_string()))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::sandbox::SandboxDone;
    use crate::node::bench::Bench;
    use crate::node::network::connecting::Connecting;
    use crate::pod::ports::{HostPort, Protocol};

    /// Has a pod wait for a host port.
    fn wait(bench: &mut Bench, uid: &str, protocol: Protocol) {
        bench.add(uid);
        bench.sandbox(uid, SandboxState::Preparing);
        let done = SandboxDone { ips: Vec::new(), warnings: Vec::new() };
        bench.node.connecting.insert(uid.to_owned(), Connecting::Rules(done));
        let port = HostPort { ip: None, protocol, port: 80, container_port: 80 };
        bench.node.host_ports.want(uid, vec![Forward { port, to: "10.0.0.2".parse().unwrap() }]);
    }

    /// Whether the pod is ready, and whether it still waits.
    fn state(bench: &Bench, uid: &str) -> (bool, bool) {
        let ready = matches!(bench.record(uid).sandbox.state, SandboxState::Ready { .. });
        (ready, bench.node.connecting.contains_key(uid))
    }

    #[test]
    fn pod_is_connected_or_fails_with_its_rules() {
        for (protocol, result, expected) in [
            (Protocol::Tcp, Ok(()), (true, false)),
            (Protocol::Tcp, Err("no nft".to_owned()), (false, false)),
            // Flows of datagrams to the port before are deleted first.
            (Protocol::Udp, Ok(()), (false, true)),
        ] {
            let mut bench = Bench::new();
            wait(&mut bench, "u", protocol);
            bench.node.replace_rules();
            assert!(bench.node.host_ports.is_changing());
            bench.node.rules_replaced(result);
            assert_eq!(state(&bench, "u"), expected);
            assert!(!bench.node.host_ports.is_changing());
        }
    }

    #[test]
    fn pods_whose_rules_are_refused_together_are_tried_apart() {
        let mut bench = Bench::new();
        wait(&mut bench, "a", Protocol::Tcp);
        wait(&mut bench, "b", Protocol::Tcp);
        bench.node.replace_rules();
        bench.node.rules_replaced(Err("no nft".to_owned()));
        assert_eq!([state(&bench, "a"), state(&bench, "b")], [(false, true); 2], "it may be about either");
        bench.node.rules_replaced(Ok(()));
        assert_eq!([state(&bench, "a"), state(&bench, "b")], [(true, false), (false, true)]);
        bench.node.rules_replaced(Err("no nft".to_owned()));
        assert_eq!([state(&bench, "a"), state(&bench, "b")], [(true, false), (false, false)]);
    }
}
