//! Cluster addresses of Services: only the stored Services (`held`) determine which are in use. K8s
//! pkg/registry/core/service/storage/alloc.go, IPv4 only.

use sampan_json::SetField;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::families;
use super::held::Taken;
use super::range::ServiceRange;
use crate::kinds::service_cidr;
use crate::resource::Resource;
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::{Store, StoreError};
use apimachinery::field::FieldError;
use apimachinery::key::ObjectKey;
use apimachinery::meta;

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
