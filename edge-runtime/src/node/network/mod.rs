//! Connecting pods: the parts of a sandbox that need other processes (CSI drivers, inspection of volumes, nft, CNI
//! plugins, systemd). The loop does not block on them.
//!
//! Each step of a pod gets one answer: at once if nothing has to be waited for, otherwise as news. If the same step is
//! requested again while it is in progress (after the monitor was lost), the answer to the first request serves both.

mod answers;
pub(super) mod connecting;
pub(super) mod host_ports;
mod rules;
mod token_wait;
mod volumes;

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;

use self::connecting::Connecting;
use super::Node;
use crate::launch::error::SandboxError;
use crate::launch::sandbox::{Preparation, SandboxDone};
use crate::pod::event::PodEvent;
use crate::pod::ports::forwards;
use crate::pod::record::SandboxState;
use crate::sys::gather::Gather;

impl Node {
    /// An answer at once, or none and one later.
    pub(super) fn prepare_sandbox(&mut self, uid: &str, pod: &Pod) -> Option<PodEvent> {
        if self.connecting.contains_key(uid) {
            return None;
        }
        match self.mount_volumes(uid, pod) {
            Ok(true) => None,
            Ok(false) => self.look(uid, pod),
            Err(failure) => Some(self.not_prepared(uid, &failure)),
        }
    }

    /// The pod has its volumes of CSI drivers.
    fn look(&mut self, uid: &str, pod: &Pod) -> Option<PodEvent> {
        let looks = self.launch.sandboxes.volume_looks(pod, &self.cx.objects());
        match looks {
            Ok(looks) if looks.is_empty() => self.connect(uid, pod),
            Ok(looks) => {
                self.look_at_volumes(uid, looks);
                None
            }
            Err(failure) => Some(failed(&failure)),
        }
    }

    fn connect(&mut self, uid: &str, pod: &Pod) -> Option<PodEvent> {
        let taken = self.taken_addresses(uid);
        let keep = self.cx.pods.get(uid).map(|entry| entry.record.ips.clone()).unwrap_or_default();
        let prepared = self.launch.sandboxes.prepare(pod, &taken, &keep, &self.cx.objects());
        match prepared {
            Ok(Preparation::Connected(ips)) => {
                let aside = self.launch.sandboxes.teardown.set_attachment_aside(uid);
                return match aside {
                    Ok(()) => self.connected(uid, pod, ips, false),
                    Err(error) => Some(self.not_connected(uid, format!("its attachment by CNI plugins: {error}"))),
                };
            }
            Ok(Preparation::Attach(attachment)) => {
                if let Err(error) = self.launch.sandboxes.teardown.take_attachment_back(uid) {
                    return Some(self.not_connected(uid, format!("its attachment by CNI plugins: {error}")));
                }
                for (reason, message) in self.launch.sandboxes.incapable(pod, &attachment) {
                    self.cx.warn_about_pod(uid, reason, message);
                }
                self.attach(uid, attachment);
            }
            Ok(Preparation::Cgroup(pending)) => self.await_cgroup(uid, Connecting::MakingCgroup, pending),
            Err(error) => return Some(failed(&error)),
        }
        None
    }

    /// Makes the pod's volumes of what is there, and its rules, which plugins make themselves.
    fn furnish(&mut self, uid: &str, pod: &Pod, ips: Vec<IpAddr>, by_plugins: bool) -> Option<PodEvent> {
        let finished = self.launch.sandboxes.finish(pod, ips, &self.cx.objects());
        let done = match finished {
            Ok(done) if by_plugins => return Some(self.sandbox_ready(uid, done)),
            Ok(done) => done,
            Err(failure) if by_plugins => {
                self.detach(uid, Connecting::Undoing(failure));
                return None;
            }
            Err(failure) => {
                self.launch.sandboxes.undo(pod);
                return Some(self.not_prepared(uid, &failure));
            }
        };
        let ports = forwards(pod, &done.ips);
        // A pod on the node's own network is not behind the bridge.
        let outside = done.ips.is_empty() && ports.is_empty() && self.host_ports.has(uid, &ports);
        if outside || self.host_ports.lets_in(uid, &ports) {
            return self.guarded(uid, done);
        }
        self.connecting.insert(uid.to_owned(), Connecting::Rules(done));
        self.host_ports.want(uid, ports);
        self.replace_rules();
        None
    }

    /// Has it wait for the rules that policies have for it, if there are policies.
    pub(super) fn guarded(&mut self, uid: &str, done: SandboxDone) -> Option<PodEvent> {
        if self.policies.holds_back(uid, &done.ips) {
            self.connecting.insert(uid.to_owned(), Connecting::Policies(done));
            return None;
        }
        Some(self.sandbox_ready(uid, done))
    }

    /// If a token is missing, the message says why.
    fn not_prepared(&self, uid: &str, error: &SandboxError) -> PodEvent {
        match self.tokens.problem(&self.cx, uid).filter(|_| error.lacks_token()) {
            Some(why) => {
                PodEvent::SandboxFailed { reason: error.reason().to_owned(), message: format!("{error}: {why}") }
            }
            None => failed(error),
        }
    }

    fn sandbox_ready(&mut self, uid: &str, done: SandboxDone) -> PodEvent {
        for (reason, message) in done.warnings {
            self.cx.warn_about_pod(uid, reason, message);
        }
        PodEvent::SandboxReady { ips: done.ips }
    }

    /// Addresses of all other pods. An ended pod only remembers its own; one being connected has its already.
    fn taken_addresses(&self, uid: &str) -> BTreeSet<IpAddr> {
        let others = self.cx.pods.iter().filter(|(other, _)| *other != uid);
        let held = others.filter(|(_, entry)| entry.record.sandbox.state != SandboxState::Gone);
        let connecting = self.connecting.values().flat_map(|one| match one {
            Connecting::Rules(done) | Connecting::Policies(done) => done.ips.as_slice(),
            Connecting::Tokens { ips, .. } => ips.as_slice(),
            _ => &[],
        });
        held.flat_map(|(_, entry)| &entry.record.ips).chain(connecting).copied().into_set()
    }

    /// Undoes [`Node::prepare_sandbox`] permanently: answers at once, or with `None` and later.
    pub(super) fn disconnect(&mut self, uid: &str) -> Option<PodEvent> {
        self.waits_no_longer(uid);
        // The rules of a pod that is being connected come first; their result returns here.
        if self.connecting.contains_key(uid) {
            return None;
        }
        if self.launch.sandboxes.teardown.held(uid).is_some() {
            self.detach(uid, Connecting::Detaching);
            return None;
        }
        if self.host_ports.has(uid, &[]) {
            return self.remove_sandbox(uid);
        }
        self.host_ports.want(uid, Vec::new());
        self.replace_rules();
        None
    }

    fn remove_sandbox(&mut self, uid: &str) -> Option<PodEvent> {
        match self.pod(uid).and_then(|pod| self.launch.sandboxes.teardown.stop_cgroup(&pod, uid)) {
            Some(pending) => {
                self.await_cgroup(uid, Connecting::EndingCgroup, pending);
                None
            }
            None => self.remove_prepared(uid),
        }
    }

    fn remove_prepared(&mut self, uid: &str) -> Option<PodEvent> {
        let Some(pod) = self.pod(uid) else { return Some(PodEvent::TornDown) };
        let removed = match self.unmount_volumes(uid) {
            Ok(true) => return None,
            Ok(false) => self.launch.teardown(&pod, uid, true),
            Err(error) => Err(error.to_string()),
        };
        Some(match removed {
            Ok(()) => PodEvent::TornDown,
            Err(message) => PodEvent::TeardownFailed { message },
        })
    }

    pub(in crate::node) fn is_ending(&self, uid: &str) -> bool {
        self.cx.pods.get(uid).is_some_and(|entry| entry.record.sandbox.state == SandboxState::TearingDown)
    }

    fn not_connected(&mut self, uid: &str, error: String) -> PodEvent {
        self.undone(uid, &SandboxError::Other(error))
    }

    fn undone(&mut self, uid: &str, failure: &SandboxError) -> PodEvent {
        if let Some(pod) = self.pod(uid)
            && let Err(error) = self.launch.teardown(&pod, uid, false)
        {
            log::warn!("pod {uid}: undoing a failed preparation: {error}");
        }
        failed(failure)
    }
}

fn failed(failure: &SandboxError) -> PodEvent {
    PodEvent::SandboxFailed { reason: failure.reason().to_owned(), message: failure.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::bench::{Bench, pod};

    #[test]
    fn pod_has_no_address_that_another_has_or_is_about_to_get() {
        let mut bench = Bench::new();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let pods = [
            ("own", SandboxState::Lost, "10.0.0.2"),
            ("runs", SandboxState::TearingDown, "10.0.0.3"),
            ("gone", SandboxState::Gone, "10.0.0.4"),
        ];
        for (uid, state, address) in pods {
            bench.add(uid);
            bench.sandbox(uid, state);
            bench.record_mut(uid).ips = vec![ip(address)];
        }
        let done = |address: &str| SandboxDone { ips: vec![ip(address)], warnings: Vec::new() };
        bench.node.connecting.insert("a".to_owned(), Connecting::Rules(done("10.0.0.5")));
        bench.node.connecting.insert("b".to_owned(), Connecting::Policies(done("10.0.0.6")));
        let tokens = Connecting::Tokens { ips: vec![ip("10.0.0.7")], by_plugins: false };
        bench.node.connecting.insert("c".to_owned(), tokens);
        let others = BTreeSet::from(["10.0.0.3", "10.0.0.5", "10.0.0.6", "10.0.0.7"].map(ip));
        assert_eq!(bench.node.taken_addresses("own"), others);
    }

    #[test]
    fn pod_on_the_nodes_network_waits_for_no_rules() {
        let mut bench = Bench::new();
        bench.add("u");
        assert!(!bench.node.host_ports.is_there());
        let answer = bench.node.prepare_sandbox("u", &pod("u", "u"));
        assert_eq!(answer, Some(PodEvent::SandboxReady { ips: Vec::new() }));
    }

    #[test]
    fn step_under_way_gets_one_answer() {
        let mut bench = Bench::new();
        bench.add("u");
        bench.node.connecting.insert("u".to_owned(), Connecting::Looking);
        assert_eq!(bench.node.prepare_sandbox("u", &pod("u", "u")), None);
        assert!(!bench.node.cx.paths.pod("u").exists(), "nothing is done twice");
        assert_eq!(bench.node.disconnect("u"), None, "what is under way comes first");
        bench.node.connecting.remove("u");
        assert_eq!(bench.node.disconnect("u"), Some(PodEvent::TornDown));
    }

    #[test]
    fn teardown_goes_on_when_the_kernel_has_dropped_host_ports() {
        let mut bench = Bench::new();
        bench.add("u");
        for (result, expected) in [(Err("nft".to_owned()), "Failed"), (Ok(()), "Gone")] {
            bench.sandbox("u", SandboxState::TearingDown);
            bench.node.rules_known("u".to_owned(), result);
            let state = format!("{:?}", bench.record("u").sandbox.state);
            assert!(state.starts_with(expected), "{state}");
        }
    }
}
