//! Cluster addresses of Services: only the stored Services (`held`) determine which are in use. K8s
//! pkg/registry/core/service/storage/alloc.go, IPv4 only.

use edge_protocol::json::SetField;
use std::fmt;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::families;
use super::held::Taken;
use crate::kinds::service_cidr;
use crate::resource::Resource;
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::{Store, StoreError};
use apimachinery::field::FieldError;
use apimachinery::key::ObjectKey;
use apimachinery::meta;

/// Addresses for Services: network and prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceRange {
    network: u32,
    prefix: u8,
}

impl fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.network), self.prefix)
    }
}

impl ServiceRange {
    /// Parses `10.96.0.0/16`.
    ///
    /// # Errors
    /// The reason why the text is invalid, and a valid form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no IPv4 range such as 10.96.0.0/16 (prefix 8 to 30)");
        let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
        let prefix: u8 = prefix.parse().ok().filter(|prefix| (8..=30).contains(prefix)).ok_or_else(wrong)?;
        Ok(Self { network: u32::from(address) & (u32::MAX << (32 - prefix)), prefix })
    }

    /// Addresses that may be given, without network and broadcast.
    fn size(self) -> u32 {
        (1 << (32 - self.prefix)) - 2
    }

    /// Address of the API's own Service.
    pub fn first(self) -> Ipv4Addr {
        Ipv4Addr::from(self.network + 1)
    }

    fn contains(self, address: Ipv4Addr) -> bool {
        let place = u32::from(address).wrapping_sub(self.network);
        place >= 1 && place <= self.size()
    }

    /// A free address, searched from a seeded position, so that an address is not reused at once. `api` belongs to the
    /// API.
    fn free(self, taken: impl Fn(Ipv4Addr) -> bool, api: Ipv4Addr, seed: u32) -> Option<Ipv4Addr> {
        // The lower part is left for explicitly chosen addresses, as in the API server.
        let low = (self.size() / 16).clamp(8, 256).min(self.size() / 2);
        let upper = self.size() - low;
        let above = (0..upper).map(|n| low + (seed.wrapping_add(n)) % upper);
        let mut places = above.chain(0..low).map(|place| Ipv4Addr::from(self.network + 1 + place));
        places.find(|address| *address != api && !taken(*address))
    }
}

/// The API's own range, then those of ServiceCIDRs that stay.
fn ranges(own: ServiceRange, store: &Store) -> Result<Vec<ServiceRange>, StoreError> {
    let all = store.list(service_cidr::STORAGE, None, None, None)?;
    let stay = all.iter().map(|one| one.value()).filter(|one| !meta::deleting(one));
    let more = stay.flat_map(service_cidr::ranges).filter_map(|range| ServiceRange::parse(range).ok());
    let mut ranges = vec![own];
    ranges.extend(more.filter(|range| *range != own));
    Ok(ranges)
}

/// Gives a Service the address it needs, or checks the one it asks for.
pub(crate) fn allocate(
    (range, taken): (ServiceRange, &Taken),
    store: &Store,
    resource: &Resource,
    service: &mut Value,
) -> ApiResult<()> {
    if !service["spec"].is_object() || service["spec"]["type"] == "ExternalName" {
        return Ok(());
    }
    let errors = families::choose(service);
    if !errors.is_empty() {
        return Err(ApiError::invalid(resource, meta::text(service, "name"), &errors));
    }
    let asked = service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
    let own = ObjectKey::of(service);
    match asked.as_str() {
        "None" => {}
        "" => {
            let seed = meta::random_number();
            let (ranges, is_taken) = (ranges(range, store)?, |address| taken.has_address(address, &own));
            let free = ranges.iter().find_map(|one| one.free(is_taken, range.first(), seed)).ok_or_else(|| {
                let size: u64 = ranges.iter().map(|range| u64::from(range.size())).sum();
                ApiError::internal(format!("failed to allocate a serviceIP: range is full ({size} addresses)"))
            })?;
            service.set_at(&["spec", "clusterIP"], free.to_string().into());
            service.set_at(&["spec", "clusterIPs"], json!([free.to_string()]));
        }
        text => {
            // Other families and nonsense are the validation's business.
            let Ok(address) = text.parse::<Ipv4Addr>() else { return Ok(()) };
            let problem = if !ranges(range, store)?.iter().any(|range| range.contains(address)) {
                format!("failed to allocate IP {address}: the provided IP is not in the valid range")
            } else if taken.has_address(address, &own) {
                format!("failed to allocate IP {address}: provided IP is already allocated")
            } else {
                String::new()
            };
            if !problem.is_empty() {
                let wrong = FieldError::invalid("spec.clusterIPs", &json!([text]), &problem);
                return Err(ApiError::invalid(resource, meta::text(service, "name"), &[wrong]));
            }
        }
    }
    Ok(())
}

/// Gives an updated Service the address it needs, if it had none. One that it has stays, which validation sees to.
pub(crate) fn update(
    (range, taken): (ServiceRange, &Taken),
    store: &Store,
    resource: &Resource,
    new: &mut Value,
    old: &Value,
) -> ApiResult<()> {
    let has = |service: &Value| !service["spec"]["clusterIP"].as_str().unwrap_or_default().is_empty();
    if !has(new) || !has(old) || old["spec"]["type"] == "ExternalName" {
        return allocate((range, taken), store, resource, new);
    }
    const OF_ADDRESSES: [&str; 4] = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"];
    let changed = OF_ADDRESSES.iter().any(|field| new["spec"][field] != old["spec"][field]);
    let errors = if changed && new["spec"]["type"] != "ExternalName" { families::choose(new) } else { Vec::new() };
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(resource, meta::text(new, "name"), &errors))
}

/// What every cluster has of the API itself: its range, and its Service in `default`.
pub(crate) fn of_the_api(range: ServiceRange, store: &mut Store) -> Result<(), StoreError> {
    own_range(range, store)?;
    let key = ObjectKey { namespace: "default".to_owned(), name: "kubernetes".to_owned() };
    let current = store.get("services", &key)?;
    let address = range.first().to_string();
    if current.as_ref().is_some_and(|service| service.value()["spec"]["clusterIP"] == *address) {
        return Ok(());
    }
    let mut service = json!({
        "metadata": {"name": key.name, "namespace": key.namespace,
            "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "type": "ClusterIP", "clusterIP": address, "clusterIPs": [address],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
            "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        },
        "status": {"loadBalancer": {}},
    });
    meta::fill_new(&mut service, Timestamp::now());
    // Another range than at the last start: the address follows it.
    store.write("services", service, current.as_ref(), None)?;
    Ok(())
}

fn own_range(range: ServiceRange, store: &mut Store) -> Result<(), StoreError> {
    let key = ObjectKey::cluster(service_cidr::DEFAULT);
    let current = store.get(service_cidr::STORAGE, &key)?;
    let spec = json!({"cidrs": [range.to_string()]});
    if current.as_ref().is_some_and(|current| current.value()["spec"] == spec) {
        return Ok(());
    }
    let mut own = json!({"metadata": {"name": key.name}, "spec": spec});
    (service_cidr::KIND.prepare_create)(&mut own);
    meta::fill_new(&mut own, Timestamp::now());
    store.write(service_cidr::STORAGE, own, current.as_ref(), None).map(drop)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ranges_are_read_and_bounded() {
        let range = ServiceRange::parse("10.96.3.4/16").unwrap();
        assert_eq!(range.first(), Ipv4Addr::new(10, 96, 0, 1));
        assert!(range.contains(Ipv4Addr::new(10, 96, 255, 254)));
        for outside in [[10, 96, 0, 0], [10, 96, 255, 255], [10, 97, 0, 1], [10, 95, 255, 255]] {
            assert!(!range.contains(outside.into()), "{outside:?}");
        }
        for bad in ["", "10.96.0.0", "10.96.0.0/31", "10.96.0.0/7", "::/64", "x/16"] {
            assert!(ServiceRange::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_address_is_given_once_and_the_first_never() {
        let range = ServiceRange::parse("10.0.0.0/28").unwrap();
        let mut given = BTreeSet::new();
        while let Some(address) = range.free(|address| given.contains(&address), range.first(), 5) {
            assert!(range.contains(address) && given.insert(address));
        }
        assert_eq!(given.len(), 13);
        assert!(!given.contains(&range.first()));
    }
}
