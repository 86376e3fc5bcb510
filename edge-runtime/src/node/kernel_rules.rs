//! Reaction to changes of the kernel's rules by other programs: deleted tables of this node (`nft flush ruleset`, a
//! restarted firewall) are restored completely, and while another program serves Services, this node's tables serve
//! none.
//!
//! The kernel notifies of changes, and housekeeping checks, too: the kernel does not notify of the chains of the old
//! iptables or of links.

pub(super) mod state;

use std::time::Duration;

use nix::libc;

use self::state::is_missing;
use super::Node;
use super::sources::News;
use crate::config::NetworkMode;
use crate::net::firewall::others::Blocking;
use crate::net::netlink::{Socket, nftables};
use crate::net::services::elsewhere;
use crate::net::{firewall, policy, services};
use crate::store::StoreError;

/// Between two looks, whatever others do.
const PAUSE: Duration = Duration::from_secs(1);

impl Node {
    /// Whether the node has any rules of its own.
    fn has_rules(&self) -> bool {
        !self.kernel_rules.absent
            && (self.cx.config.network.mode != NetworkMode::Cni || self.cx.config.services.enabled)
    }

    /// Has the kernel tell of changes. Without it they are found by housekeeping.
    pub(super) fn watch_rules(&self) {
        if !self.has_rules() {
            return;
        }
        let changes = match nftables::Changes::open() {
            Ok(changes) => changes,
            Err(error) => return log::debug!("the kernel does not tell of changes of its rules: {error}"),
        };
        let news = self.cx.senders.news.clone();
        let wait = async move {
            while changes.changed().await.is_ok() && news.send(News::RulesChanged).await.is_ok() {
                smol::Timer::after(PAUSE).await;
            }
        };
        self.cx.tasks.spawn(wait).detach();
    }

    /// Adds accept rules for pods' packets to other programs' firewalls, whenever rules have changed: a firewall that
    /// is started or reloaded starts empty.
    fn look_at_others(&mut self, generation: u32) {
        let now = self.cx.mono();
        if self.cx.config.network.mode == NetworkMode::Cni || !self.kernel_rules.others.begin(generation, now) {
            return;
        }
        let network = &self.launch.sandboxes.teardown.network;
        let (nft, settings) = (network.nft().to_owned(), network.settings().clone());
        self.cx.background(async move { News::OthersPassed(firewall::forward::pass(&nft, &settings).await) });
    }

    /// Returns the chains of other firewalls that block pods.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(super) fn others_passed(&mut self, blocking: Vec<Blocking>) -> Result<(), StoreError> {
        let bridge = self.launch.sandboxes.teardown.network.settings().bridge.clone();
        for one in self.kernel_rules.others.done(blocking) {
            let text = format!("{}, so {}; allow them: {}", one.what(), one.why(), one.remedy(&bridge));
            log::warn!("{text}");
            self.cx.node_event(true, "FirewallInTheWay", &text)?;
        }
        Ok(())
    }

    /// Checks whether our tables exist, and whether they should.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(super) fn look_at_rules(&mut self) -> Result<(), StoreError> {
        if !self.has_rules() {
            return Ok(());
        }
        if self.kernel_rules.sockets.is_none() {
            let open = || Ok::<_, std::io::Error>((Socket::open_netfilter()?, Socket::open()?));
            self.kernel_rules.sockets = open().ok();
        }
        let Some((nft, links)) = &mut self.kernel_rules.sockets else { return Ok(()) };
        let generation = match nftables::generation(nft) {
            Ok(generation) => generation,
            Err(error) => {
                // `nfnetlink_rcv_msg`: the kernel lacks this subsystem, and a module for it.
                self.kernel_rules.absent = error.raw_os_error() == Some(libc::EINVAL);
                return Ok(());
            }
        };
        if self.cx.config.services.enabled && self.services.set_elsewhere(elsewhere::find(nft, links)) {
            self.cx.look_now();
        }
        self.look_at_others(generation);
        let changing = self.services.is_changing() || self.host_ports.is_changing();
        let now = self.cx.mono();
        if !self.kernel_rules.is_due(generation, changing, now) {
            return Ok(());
        }
        let settings = self.launch.sandboxes.teardown.network.settings();
        let Some((nft, _)) = &mut self.kernel_rules.sockets else { return Ok(()) };
        let bridge = &settings.bridge;
        let pods_table = firewall::table(bridge);
        let (services_table, policies_table) = (services::item::table(bridge), policy::world::table(bridge));
        let pods = self.host_ports.is_there() && !firewall::is_there(nft, settings);
        let marks = self.services.marks();
        let marks = marks.iter().map(|(v6, mark)| (*v6, mark.as_str()));
        let services = is_missing(marks, |v6, mark| nftables::has_chain(nft, v6, &services_table, mark));
        let families = settings.subnets.iter().map(|subnet| !subnet.is_ipv4());
        let marks = families.filter_map(|v6| Some((v6, self.policies.mark()?)));
        let policies = is_missing(marks, |v6, mark| nftables::has_chain(nft, v6, &policies_table, mark));
        let lost = [(pods, pods_table), (services, services_table), (policies, policies_table)];
        let lost: Vec<String> = lost.into_iter().filter_map(|(lost, table)| lost.then_some(table)).collect();
        let Some(text) = self.kernel_rules.looked(generation, &lost, now) else { return Ok(()) };
        log::warn!("{text}");
        self.cx.node_event(true, "RulesDeleted", &text)?;
        if services {
            self.services.lost();
        }
        if policies {
            self.policies.lost();
        }
        if pods {
            self.rules_lost();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::net::firewall::others::blocking;
    use crate::node::bench::Bench;

    #[test]
    fn kernel_without_nftables_is_not_asked_again() {
        let mut bench = Bench::new();
        bench.node.kernel_rules.absent = true;
        bench.node.look_at_rules().unwrap();
        assert!(bench.node.kernel_rules.sockets.is_none());
    }

    #[test]
    fn firewall_that_blocks_pods_is_reported_once() {
        let mut bench = Bench::new();
        let listed = "chain forward {\ntype filter hook forward priority 0; policy drop;\n}\n";
        let found = blocking("inet", "filter", listed, "b0");
        for _ in 0..2 {
            bench.node.others_passed(found.clone()).unwrap();
            assert_eq!(bench.node.cx.store.outbox().unwrap().len(), 1);
        }
        bench.node.others_passed(Vec::new()).unwrap();
        assert_eq!(bench.node.cx.store.outbox().unwrap().len(), 1, "its end needs no event");
    }
}
