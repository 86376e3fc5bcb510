//! Services that one run of `nft` writes: all, or as many as one transaction takes.

use std::collections::BTreeMap;

use super::Services;
use crate::net::services::LocalPod;
use crate::net::services::item::{Item, TEXT, TRANSACTION};
use crate::net::services::outside::Outside;
use crate::net::services::rules::of_service;
use crate::net::services::table::{Change, ServiceName, Wanted};
use crate::sys::gather::Gather;

impl Services {
    pub(super) fn wanted(&mut self) -> Wanted {
        self.dirty.clear();
        self.pods_changed = false;
        let pods: Vec<LocalPod> = self.pods.values().cloned().collect();
        let outside = self.outside();
        let services = self.views.keys().map(|name| (name.clone(), self.items(name, &pods, &outside))).into_map();
        Wanted { services, pods: self.onlink.clone() }
    }

    pub(super) fn change(&mut self) -> Option<Change> {
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
    pub(super) fn portion(&mut self) -> BTreeMap<ServiceName, BTreeMap<Item, String>> {
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
    use crate::pod::clock::Mono;
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
