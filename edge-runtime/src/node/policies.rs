//! NetworkPolicies in the loop, and the pods that wait for them.
//!
//! | file | owns |
//! |---|---|
//! | `state` | the policies, and the desired tables |
//! | `pods` | the pods of this node that they select |
//! | `schedule` | when and how the kernel is changed (pure) |
//! | `told` | what users are told of problems |
//! | `done` | results of changes |

pub(super) mod done;
mod pods;
mod schedule;
pub(super) mod state;
mod told;

use std::collections::BTreeSet;
use std::net::IpAddr;

use self::done::Done;
use super::Node;
use super::network::connecting::Answer;
use super::sources::News;
use crate::net::netlink::conntrack;
use crate::store::StoreError;

impl Node {
    /// Brings the kernel's rules after what pods and policies are now.
    pub(super) fn policies_step(&mut self) -> Result<(), StoreError> {
        let (pods, result) = self.policies.step(&mut self.cx, &self.launch)?;
        self.forget_flows(pods, result);
        Ok(())
    }

    pub(super) fn policies_applied(&mut self, done: Done) -> Result<(), StoreError> {
        let (pods, result) = self.policies.applied(&mut self.cx, done)?;
        self.forget_flows(pods, result);
        Ok(())
    }

    fn forget_flows(&mut self, pods: BTreeSet<String>, result: Result<(), String>) {
        let ips: Vec<IpAddr> = pods.iter().filter_map(|uid| self.policies.coming.get(uid)).flatten().copied().collect();
        if ips.is_empty() {
            return self.let_in(pods, &result);
        }
        // Otherwise established flows would continue to the next pod with the address.
        self.cx.background(async move {
            let forgotten = conntrack::forget_udp_where(|flow| ips.contains(&flow.answered_by.ip())).await;
            if let Err(error) = forgotten {
                log::warn!("datagrams to pods that are gone may reach those that have their addresses now: {error}");
            }
            News::LetIn { pods, result }
        });
    }

    pub(super) fn let_in(&mut self, pods: BTreeSet<String>, result: &Result<(), String>) {
        for uid in pods {
            // Its addresses may be another's next.
            if result.is_err() || self.is_ending(&uid) {
                self.policies.coming.remove(&uid);
            }
            self.connection_answered(&uid, Answer::Policies(result.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::sandbox::SandboxDone;
    use crate::node::bench::Bench;
    use crate::node::network::connecting::Connecting;
    use crate::pod::record::SandboxState;

    #[test]
    fn addresses_are_held_only_for_a_pod_that_is_let_in() {
        for (state, result, is_let_in) in [
            (SandboxState::Preparing, Ok(()), true),
            (SandboxState::Preparing, Err("no nft".to_owned()), false),
            (SandboxState::TearingDown, Ok(()), false),
        ] {
            let mut bench = Bench::new();
            bench.add("u");
            bench.sandbox("u", state);
            let ips: Vec<IpAddr> = vec!["10.0.0.2".parse().unwrap()];
            bench.node.policies.coming.insert("u".to_owned(), ips.clone());
            let waits = Connecting::Policies(SandboxDone { ips, warnings: Vec::new() });
            bench.node.connecting.insert("u".to_owned(), waits);
            bench.node.let_in(BTreeSet::from(["u".to_owned()]), &result);
            let state = &bench.record("u").sandbox.state;
            assert_eq!(matches!(state, SandboxState::Ready { .. }), is_let_in, "{state:?}");
            assert_eq!(bench.node.policies.coming.contains_key("u"), is_let_in, "{state:?}");
            assert!(!bench.node.connecting.contains_key("u"), "it waits no longer");
        }
    }

    #[test]
    fn pod_is_let_in_after_flows_to_its_addresses_are_deleted() {
        for (ips, waits) in [(vec!["10.0.0.2".parse().unwrap()], true), (Vec::new(), false)] {
            let mut bench = Bench::new();
            bench.add("u");
            bench.sandbox("u", SandboxState::Preparing);
            bench.node.policies.coming.insert("u".to_owned(), ips.clone());
            let step = Connecting::Policies(SandboxDone { ips, warnings: Vec::new() });
            bench.node.connecting.insert("u".to_owned(), step);
            bench.node.forget_flows(BTreeSet::from(["u".to_owned()]), Ok(()));
            assert_eq!(bench.node.connecting.contains_key("u"), waits);
            let is_preparing = bench.record("u").sandbox.state == SandboxState::Preparing;
            assert_eq!(is_preparing, waits, "flows of the last pod with the address would continue to this one");
        }
    }
}
