//! Pods that are connected while tokens for their volumes are on their way.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;

use super::super::Node;
use super::connecting::Connecting;
use crate::pod::clock::Mono;
use crate::pod::event::PodEvent;

impl Node {
    /// The pod has its addresses; the rest follows when its tokens are there.
    pub(super) fn connected(&mut self, uid: &str, pod: &Pod, ips: Vec<IpAddr>, by_plugins: bool) -> Option<PodEvent> {
        if self.tokens.awaits(&self.cx, uid) {
            self.connecting.insert(uid.to_owned(), Connecting::Tokens { ips, by_plugins });
            return None;
        }
        self.furnish(uid, pod, ips, by_plugins)
    }

    /// Goes on with a pod that waits no longer for its tokens.
    pub(in crate::node) fn prepare_waited(&mut self, now: Mono) {
        let Some(uid) = self.tokens.next_waited(now) else { return };
        let (Some((ips, by_plugins)), Some(pod)) = (self.waits_no_longer(&uid), self.pod(&uid)) else { return };
        // Else its teardown goes on by itself.
        if !self.is_ending(&uid) {
            let answer = self.furnish(&uid, &pod, ips, by_plugins);
            self.answered(&uid, answer);
        }
    }

    /// Ends a pod's wait for its tokens. Returns its addresses, and whether plugins gave them, if it waited.
    pub(super) fn waits_no_longer(&mut self, uid: &str) -> Option<(Vec<IpAddr>, bool)> {
        let waits = matches!(self.connecting.get(uid), Some(Connecting::Tokens { .. }));
        match waits.then(|| self.connecting.remove(uid)).flatten() {
            Some(Connecting::Tokens { ips, by_plugins }) => Some((ips, by_plugins)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use edge_protocol::message::TokenAnswer;
    use edge_protocol::version::TOKENS;
    use serde_json::json;

    use super::*;
    use crate::link::LinkHandle;
    use crate::node::bench::{Bench, pod};
    use crate::pod::record::SandboxState;

    /// A node with a pod `u` whose sandbox waits for a token.
    fn waits_for_token() -> Bench {
        let mut bench = Bench::new();
        bench.add("u");
        bench.sandbox("u", SandboxState::Preparing);
        bench.node.cx.link = Some(LinkHandle::for_tests(&bench.node.cx.paths, &[TOKENS]));
        let source = json!({"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}});
        let volumes = json!([{"name": "v", "projected": {"sources": [source]}}]);
        let with_token = serde_json::from_value(json!({"spec": {"containers": [], "volumes": volumes}})).unwrap();
        bench.node.tokens.want(&bench.node.cx, "u", &with_token);
        assert!(bench.node.tokens.renew(&bench.node.cx) && !bench.node.tokens.renew(&bench.node.cx), "asked once");
        assert_eq!(bench.node.prepare_sandbox("u", &pod("u", "u")), None);
        assert!(matches!(bench.node.connecting.get("u"), Some(Connecting::Tokens { .. })));
        assert!(bench.node.cx.paths.pod("u").exists(), "all else is prepared meanwhile");
        bench
    }

    #[test]
    fn sandbox_is_made_while_tokens_are_on_their_way() {
        let mut bench = waits_for_token();
        bench.node.prepare_waited(Mono(0));
        assert_eq!(bench.record("u").sandbox.state, SandboxState::Preparing);
        let time = |hour: u32| format!("2026-01-01T{hour:02}:00:00Z");
        let answer = TokenAnswer::Issued { token: "t".to_owned(), issued: time(0), expires: time(1) };
        bench.node.tokens.answered(1, answer, Mono(0));
        bench.node.prepare_waited(Mono(0));
        assert_eq!(bench.record("u").sandbox.state, SandboxState::Preparing, "it is not stored yet");
        bench.node.keep_tokens().unwrap();
        bench.node.prepare_waited(Mono(0));
        assert!(matches!(bench.record("u").sandbox.state, SandboxState::Ready { .. }));
        assert!(!bench.node.connecting.contains_key("u"));
    }

    /// After a change of `network.mode`.
    #[test]
    fn attachment_of_an_earlier_network_replaces_no_rules() {
        for (by_plugins, waits) in [(false, true), (true, false)] {
            let mut bench = Bench::new();
            bench.add("u");
            bench.sandbox("u", SandboxState::Preparing);
            assert!(bench.node.prepare_sandbox("u", &pod("u", "u")).is_some());
            std::fs::write(bench.node.launch.sandboxes.teardown.attachment_file("u"), "{}").unwrap();
            let answer = bench.node.connected("u", &pod("u", "u"), vec!["10.0.0.2".parse().unwrap()], by_plugins);
            assert_eq!(answer.is_none(), waits);
            assert_eq!(matches!(bench.node.connecting.get("u"), Some(Connecting::Rules(_))), waits, "{by_plugins}");
        }
    }

    #[test]
    fn pod_waits_for_tokens_only_once() {
        let mut bench = waits_for_token();
        let late = bench.node.cx.mono().after(Duration::from_secs(6));
        bench.node.prepare_waited(late);
        assert!(!bench.node.connecting.contains_key("u"), "the bridge has not answered, and the wait has an end");
        assert_ne!(bench.record("u").sandbox.state, SandboxState::Preparing);
    }

    #[test]
    fn pod_that_is_to_end_waits_for_no_token() {
        let mut bench = waits_for_token();
        bench.sandbox("u", SandboxState::TearingDown);
        assert_eq!(bench.node.disconnect("u"), Some(PodEvent::TornDown));
        bench.node.tokens.answered(1, TokenAnswer::Unknown, Mono(0));
        bench.node.prepare_waited(Mono(0));
        assert_eq!(bench.record("u").sandbox.state, SandboxState::TearingDown, "nothing is prepared any more");
    }
}
