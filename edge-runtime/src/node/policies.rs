//! When the kernel is told of NetworkPolicies, and the pods that wait for it. Whom they are for is in [`state`].

pub(super) mod state;

use std::collections::BTreeSet;
use std::net::IpAddr;

use self::state::Done;
use super::Node;
use super::network::connecting::Answer;
use crate::net::netlink::conntrack;
use crate::store::StoreError;

impl Node {
    /// Brings the kernel's rules after what pods and policies are now.
    pub(super) fn policies_step(&mut self) -> Result<(), StoreError> {
        let (pods, result) = self.policies.step(&mut self.cx, &self.launch)?;
        self.let_in(pods, &result);
        Ok(())
    }

    pub(super) fn policies_applied(&mut self, done: Done) -> Result<(), StoreError> {
        let (pods, result) = self.policies.applied(&mut self.cx, done)?;
        self.let_in(pods, &result);
        Ok(())
    }

    fn let_in(&mut self, pods: BTreeSet<String>, result: &Result<(), String>) {
        let ips: Vec<IpAddr> = pods.iter().filter_map(|uid| self.policies.coming.get(uid)).flatten().copied().collect();
        // What stands goes on, but not to who has the address next.
        if !ips.is_empty()
            && let Err(error) = conntrack::forget_udp_where(|flow| ips.contains(&flow.answered_by.ip()))
        {
            log::warn!("datagrams to pods that are gone may reach those that have their addresses now: {error}");
        }
        for uid in pods {
            // Its addresses may be another's next.
            if result.is_err() || self.is_ending(&uid) {
                self.policies.coming.remove(&uid);
            }
            self.connection_answered(&uid, Answer::Policies(result.clone()));
        }
    }
}
