//! When changes are written to the kernel: one run of `nft` at a time; the next one has all changes meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use super::done::Done;
use super::{Phase, Services};
use crate::launch::Launch;
use crate::net::services::item::{Item, TEXT, TRANSACTION};
use crate::net::services::outside::Outside;
use crate::net::services::rules::of_service;
use crate::net::services::table::{Change, ServiceName, Wanted};
use crate::net::services::{LocalPod, apply, offenders};
use crate::node::context::Context;
use crate::node::sources::News;
use crate::pod::clock::Mono;
use crate::store::StoreError;
use crate::sys::gather::Gather;

/// Pause between two changes of the kernel's rules; changes meanwhile are combined.
const PAUSE: Duration = Duration::from_millis(50);
/// Rules that were emptied are deleted then: kernels before 6.2 hold them for a moment.
const SWEEP_AFTER: Duration = Duration::from_secs(2);

impl Services {
    /// Tells the kernel what has changed, if it is time. Called with each round of the loop.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(in crate::node) fn step(&mut self, cx: &mut Context, launch: &Launch) -> Result<(), StoreError> {
        if self.running || !cx.resumed {
            return Ok(());
        }
        if launch.sandboxes.teardown.network.settings().subnets.is_empty() {
            // The cluster has not assigned subnets yet, so no pod needs rules.
            return Ok(());
        }
        let now = cx.mono();
        self.dirty.extend(self.left_out.due(now));
        // After all portions of a change.
        if self.dirty.is_empty() && self.flows.due(now) == Some(now) {
            self.forget_datagrams(cx);
        }
        if self.is_idle() {
            return Ok(());
        }
        if self.not_before.is_some_and(|at| now < at) {
            return Ok(());
        }
        if self.phase != Phase::Known || self.pods.is_empty() {
            self.look_at_all_pods(cx, launch);
        } else {
            // A view may have come or gone.
            self.look_at_addresses(cx, launch);
        }
        self.look_at_bounds();
        self.tell_bounds(cx)?;
        let network = &launch.sandboxes.teardown.network;
        let (nft, bridge) = (network.nft().to_owned(), network.settings().bridge.clone());
        self.keep_routes(launch);
        if self.views.is_empty() || self.elsewhere.is_some() {
            let clean = self.phase == Phase::Known && !self.tables.is_there();
            self.forget();
            self.phase = Phase::Known;
            if !clean {
                self.run(cx, async move {
                    Done::Changed(apply::remove(nft, bridge).await.map_err(|error| error.to_string()))
                });
            }
            return Ok(());
        }
        match self.phase {
            Phase::Unknown => {
                let wanted = self.wanted();
                self.tables.adopt(&wanted);
                let marks = self.tables.marks();
                self.run(cx, async move { Done::Looked(apply::has(&bridge, &marks)) });
            }
            Phase::Known if self.tables.is_there() => {
                if let Some(change) = self.change() {
                    self.sweep_at = Some(now.after(SWEEP_AFTER));
                    self.not_before = Some(now.after(PAUSE));
                    self.run(cx, async move {
                        Done::Changed(apply::run(nft, change).await.map_err(|error| error.to_string()))
                    });
                } else if self.sweep_at.is_some_and(|at| at <= now) {
                    self.sweep_at = None;
                    if let Some(change) = self.tables.sweep() {
                        // There may be more.
                        self.sweep_at = Some(now.after(PAUSE));
                        self.run(cx, async move {
                            Done::Swept(apply::run(nft, change).await.map_err(|error| error.to_string()))
                        });
                    }
                }
            }
            // Both the change and the complete state were refused.
            Phase::Whole | Phase::Known if self.failures > 1 => {
                let (wanted, tables) = (self.wanted(), self.tables.like());
                self.run(cx, async move { Done::Isolated(offenders::find(&nft, &tables, wanted).await) });
            }
            Phase::Whole | Phase::Known => {
                // The others follow, one transaction at a time.
                self.dirty = self.views.keys().cloned().into_set();
                let wanted = Wanted { services: self.portion(), pods: self.onlink.clone() };
                let change = self.tables.replace(&wanted);
                self.phase = Phase::Known;
                self.not_before = Some(now.after(PAUSE));
                self.run(
                    cx,
                    async move { Done::Changed(apply::run(nft, change).await.map_err(|error| error.to_string())) },
                );
            }
        }
        Ok(())
    }

    /// When [`Services::step`] has something to do although nothing happens.
    pub(in crate::node) fn wake(&self) -> Option<Mono> {
        if self.running {
            return None;
        }
        let changed = !self.dirty.is_empty() || self.pods_changed || self.phase != Phase::Known;
        let next = match self.is_idle() {
            true => self.left_out.wake(),
            false if changed => self.not_before,
            false => self.sweep_at,
        };
        let flows = self.flows.due(Mono::default()).filter(|_| self.dirty.is_empty());
        next.into_iter().chain(flows).min()
    }

    /// Whether a run of `nft` is under way.
    pub(in crate::node) fn is_changing(&self) -> bool {
        self.running
    }

    /// Chains whose existence shows that the kernel holds the desired state, `true` for IPv6; empty if tables should
    /// not exist.
    pub(in crate::node) fn marks(&self) -> Vec<(bool, String)> {
        let there = self.phase == Phase::Known && self.tables.is_there();
        if there {
            self.tables.marks().into_iter().map(|(family, mark)| (family == "ip6", mark)).collect()
        } else {
            Vec::new()
        }
    }

    /// Another program has deleted the tables.
    pub(in crate::node) fn lost(&mut self) {
        self.tables.forget();
        self.phase = Phase::Whole;
    }

    fn is_idle(&self) -> bool {
        let known = self.phase == Phase::Known;
        known && self.dirty.is_empty() && !self.pods_changed && self.sweep_at.is_none()
    }

    fn run(&mut self, cx: &Context, work: impl Future<Output = Done> + 'static) {
        self.running = true;
        cx.background(async move { News::ServicesApplied(work.await) });
    }

    fn forget(&mut self) {
        self.tables.forget();
        self.dirty.clear();
        self.onlink.clear();
        self.pods_changed = false;
        self.sweep_at = None;
    }

    fn wanted(&mut self) -> Wanted {
        self.dirty.clear();
        self.pods_changed = false;
        let pods: Vec<LocalPod> = self.pods.values().cloned().collect();
        let outside = self.outside();
        let services = self.views.keys().map(|name| (name.clone(), self.items(name, &pods, &outside))).into_map();
        Wanted { services, pods: self.onlink.clone() }
    }

    fn change(&mut self) -> Option<Change> {
        loop {
            let services = self.portion();
            let change = self.tables.change(&services, &self.onlink);
            self.dirty.extend(self.tables.take_heirs());
            if change.is_some() || self.dirty.is_empty() {
                return change;
            }
        }
    }

    /// Services that have changed, as many as one transaction takes; the rest stays for the next.
    fn portion(&mut self) -> BTreeMap<ServiceName, BTreeMap<Item, String>> {
        let mut names = std::mem::take(&mut self.dirty);
        names.extend(self.tables.take_heirs());
        self.pods_changed = false;
        let pods: Vec<LocalPod> = self.pods.values().cloned().collect();
        let outside = self.outside();
        let (mut portion, mut size, mut text) = (BTreeMap::new(), 0, 0);
        while let Some(name) = names.pop_first() {
            let items = self.items(&name, &pods, &outside);
            size += items.len().max(self.tables.size(&name));
            text += items.values().map(String::len).sum::<usize>();
            if (size > TRANSACTION || text > TEXT) && !portion.is_empty() {
                names.insert(name);
                break;
            }
            portion.insert(name, items);
        }
        self.dirty = names;
        portion
    }

    fn items(&self, name: &ServiceName, pods: &[LocalPod], outside: &Outside<'_>) -> BTreeMap<Item, String> {
        if self.left_out.has(name) {
            return BTreeMap::new();
        }
        let Some((view, others)) = self.taken(name) else { return BTreeMap::new() };
        let own;
        let view = match view.outside().next() {
            None => &*view,
            Some(_) => {
                own = self.without_what_is_others(&view);
                &own
            }
        };
        let mut items = of_service((&name.0, &name.1), view, pods, others, &self.here, &self.tables.families());
        outside.keep_own(name, &self.here.ips, &mut items);
        items
    }
}

#[cfg(test)]
mod tests {
    use edge_protocol::message::ObjectKey;
    use serde_json::{Value, json};

    use super::*;
    use crate::config::ServicesConfig;
    use crate::net::Subnet;
    use crate::net::services::view::SERVICE_VIEW;
    use crate::net::services::{Here, Tables};
    use crate::store::Store;

    fn services() -> Services {
        let subnets: [Subnet; 1] = ["10.42.0.0/24".parse().unwrap()];
        let (tables, store) = (Tables::new("b0", &subnets), Store::in_memory().unwrap());
        Services::open(&ServicesConfig::default(), tables, Here::default(), &store).unwrap()
    }

    /// A Service with this number of addresses and ports, and an item for each of both.
    fn put(services: &mut Services, number: usize, ips: usize, ports: u16) {
        let key = ObjectKey { kind: SERVICE_VIEW.into(), namespace: "ns".into(), name: format!("s{number:02}") };
        let ports: Vec<Value> = (1..=ports).map(|port| json!({ "port": port })).collect();
        let ips: Vec<String> = (0..ips).map(|ip| format!("10.96.{ip}.{}", number + 1)).collect();
        services.put(&key, Some(json!({"spec": {"clusterIPs": ips, "ports": ports}})));
    }

    #[test]
    fn many_services_go_in_portions_and_each_once() {
        let mut services = services();
        (0..40).for_each(|number| put(&mut services, number, 1, 100));
        let (mut sizes, mut seen) = (Vec::new(), Vec::new());
        while !services.dirty.is_empty() && sizes.len() < 40 {
            let portion = services.portion();
            sizes.push(portion.values().map(BTreeMap::len).sum::<usize>());
            seen.extend(portion.into_keys());
        }
        assert_eq!(seen, services.views.keys().cloned().collect::<Vec<_>>());
        assert!(sizes.len() > 1 && sizes.iter().all(|size| (1..=TRANSACTION).contains(size)), "{sizes:?}");
        assert!(services.portion().is_empty(), "nothing is left");
    }

    #[test]
    fn service_larger_than_a_transaction_goes_alone() {
        let mut services = services();
        [(1, 1, 1), (2, 5, 250), (3, 1, 1)]
            .iter()
            .for_each(|(number, ips, ports)| put(&mut services, *number, *ips, *ports));
        let mut portions = Vec::new();
        while !services.dirty.is_empty() && portions.len() < 3 {
            portions.push(services.portion().into_keys().map(|(_, name)| name).collect::<Vec<_>>());
        }
        assert_eq!(portions, [["s01"], ["s02"], ["s03"]]);
    }

    #[test]
    fn deleted_service_is_in_the_next_portion_without_items() {
        let mut services = services();
        put(&mut services, 1, 1, 1);
        assert!(services.portion().values().all(|items| !items.is_empty()));
        let key = ObjectKey { kind: SERVICE_VIEW.into(), namespace: "ns".into(), name: "s01".into() };
        services.put(&key, None);
        let portion = services.portion();
        assert_eq!((portion.len(), portion.values().map(BTreeMap::len).sum::<usize>()), (1, 0));
    }

    #[test]
    fn service_that_the_kernel_refuses_has_no_items() {
        let mut services = services();
        put(&mut services, 1, 1, 1);
        let name = ("ns".to_owned(), "s01".to_owned());
        services.left_out.add(vec![name.clone()], Mono(0));
        assert_eq!(services.portion().get(&name).map(BTreeMap::len), Some(0));
        services.dirty.extend(services.left_out.due(Mono(60_000)));
        assert!(services.portion().get(&name).is_some_and(|items| !items.is_empty()), "it is tried again");
    }
}
