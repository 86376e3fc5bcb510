//! What users are told of NetworkPolicies that do not guard as they should: each problem once.

use std::collections::BTreeMap;

use super::schedule::Notice;
use crate::net::policy::world::Name;
use crate::node::context::Context;
use crate::store::StoreError;

/// Maximum number of policies that are reported as not understood; further ones are only logged.
const TOLD_AT_MOST: usize = 100;

#[derive(Default)]
pub(super) struct Told {
    /// Problems of policies that isolate because they are not understood.
    denied: BTreeMap<Name, String>,
    neighbours: bool,
}

impl Told {
    /// Whether the next change of the rules is to show if neighbours can bypass them.
    pub(super) fn wants_neighbours(&self) -> bool {
        !self.neighbours
    }

    /// Reports a problem of the kernel's rules. Without policies no pod misses any.
    pub(super) fn notice(&mut self, cx: &mut Context, notice: Notice, has_policies: bool) -> Result<(), StoreError> {
        match notice {
            Notice::Refused(why) if has_policies => {
                log::error!("NetworkPolicies: {why}");
                let text = format!("Pods are guarded as before, and new ones wait: {why}");
                cx.node_event(true, "NetworkPoliciesNotApplied", &text)?;
            }
            Notice::Refused(_) => {}
            Notice::Around(why) if !self.neighbours => {
                self.neighbours = true;
                log::warn!("pods with the capability NET_RAW can go around policies for pods of this node: {why}");
                let text = format!("Pods with NET_RAW can reach their neighbours on this node around policies: {why}");
                cx.node_event(true, "NetworkPoliciesIncomplete", &text)?;
            }
            Notice::Around(_) => {}
            Notice::Left(why) => log::warn!("rules of policies that are gone may be in the kernel: {why}"),
        }
        Ok(())
    }

    /// Reports policies that isolate because they are not understood.
    pub(super) fn denied(&mut self, cx: &mut Context, denied: BTreeMap<Name, String>) -> Result<(), StoreError> {
        for (name, why) in &denied {
            if self.denied.get(name) == Some(why) {
                continue;
            }
            log::error!("NetworkPolicy {}/{} lets nothing through: {why}", name.0, name.1);
            if self.denied.len() < TOLD_AT_MOST {
                let text =
                    format!("NetworkPolicy {}/{} isolates its pods, and lets nothing through: {why}", name.0, name.1);
                cx.node_event(true, "NetworkPolicyNotUnderstood", &text)?;
            }
        }
        self.denied = denied;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(folder.path());
        let mut told = Told::default();
        let denied = |why: &str| BTreeMap::from([(("ns".to_owned(), "a".to_owned()), why.to_owned())]);
        for (why, events) in [("no port", 1), ("no port", 1), ("no peer", 2)] {
            told.denied(&mut cx, denied(why)).unwrap();
            assert_eq!(cx.store.outbox().unwrap().len(), events, "{why}");
        }
        for _ in 0..2 {
            told.notice(&mut cx, Notice::Around("no table".into()), true).unwrap();
        }
        assert!(cx.store.outbox().unwrap().len() == 3 && !told.wants_neighbours());
        told.notice(&mut cx, Notice::Refused("no nft".into()), false).unwrap();
        assert_eq!(cx.store.outbox().unwrap().len(), 3, "no policy is missed");
        told.notice(&mut cx, Notice::Refused("no nft".into()), true).unwrap();
        assert_eq!(cx.store.outbox().unwrap().len(), 4);
    }
}
