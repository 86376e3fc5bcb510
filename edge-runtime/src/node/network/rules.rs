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
