//! Node ports of Services: only the stored Services (`held`) determine which are in use. K8s
//! pkg/registry/core/service/storage/alloc.go and pkg/registry/core/service/strategy.go.

use std::collections::BTreeSet;

use sampan_json::SetField;
use serde_json::{Value, json};

use super::held::{Taken, node_port as asked, node_ports};
use crate::resource::Resource;
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::field::FieldError;
use apimachinery::json::{flag, integer, items, items_mut, object_mut, text};
use apimachinery::key::ObjectKey;
use apimachinery::meta;

/// Kubernetes' default.
const FIRST: i64 = 30_000;
const LAST: i64 = 32_767;
/// Number of ports left for explicit choice (K8s pkg/registry/core/service/portallocator, KEP-3668).
const STATIC_BAND: i64 = 86;

/// Gives the ports of a Service the node ports they need, or checks those they ask for.
pub(crate) fn allocate(taken: &Taken, resource: &Resource, service: &mut Value) -> ApiResult<()> {
    if !needs(&service["spec"]) && !needs_health_check(&service["spec"]) {
        return Ok(());
    }
    let holder = ObjectKey::of(service);
    let own: BTreeSet<i64> = items(&service["spec"], "ports").iter().filter_map(asked).collect();
    let mut wrong = Vec::new();
    let refused = |protocol: &str, port: i64| match (FIRST..=LAST).contains(&port) {
        false => Some(format!("provided port is not in the valid range. The range of valid ports is {FIRST}-{LAST}")),
        true => taken.has_port(port, Some(protocol), &holder).then(|| "provided port is already allocated".to_owned()),
    };
    let size = LAST - FIRST - STATIC_BAND + 1;
    let seed = i64::from(meta::random_number());
    // One way through all of them, however many are given.
    let upper = (0..size).map(|n| FIRST + STATIC_BAND + (seed + n) % size);
    let mut left = upper.chain(FIRST..FIRST + STATIC_BAND);
    let mut free = || {
        let port = left.find(|port| !own.contains(port) && !taken.has_port(*port, None, &holder));
        port.ok_or_else(|| ApiError::internal("failed to allocate a nodePort: range is full".to_owned()))
    };
    if needs(&service["spec"]) {
        let Some(spec) = service.get_mut("spec") else { return Ok(()) };
        for (index, port) in items_mut(spec, "ports").enumerate() {
            match asked(port) {
                Some(number) => {
                    if let Some(why) = refused(text(port, "protocol"), number) {
                        let field = format!("spec.ports[{index}].nodePort");
                        wrong.push(FieldError::invalid(field, &number.into(), &why));
                    }
                }
                None => port.set("nodePort", free()?.into()),
            }
        }
    }
    if needs_health_check(&service["spec"]) {
        match integer(&service["spec"], "healthCheckNodePort").filter(|port| *port != 0) {
            Some(number) => {
                if let Some(why) = refused("TCP", number) {
                    wrong.push(FieldError::invalid("spec.healthCheckNodePort", &number.into(), &why));
                }
            }
            None => service.set_at(&["spec", "healthCheckNodePort"], free()?.into()),
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(ApiError::invalid(resource, meta::text(service, "name"), &wrong)) }
}

/// Allocates node ports for an update. Ports that the Service already had are free of conflicts.
pub(crate) fn update(taken: &Taken, resource: &Resource, new: &mut Value, old: &Value) -> ApiResult<()> {
    if has_all(&new["spec"], &old["spec"]) { Ok(()) } else { allocate(taken, resource, new) }
}

/// Whether a Service asks for node ports that it had, and needs no others.
fn has_all(new: &Value, old: &Value) -> bool {
    let had: BTreeSet<(String, i64)> = node_ports(old).collect();
    let whole = !needs(new) || items(new, "ports").iter().all(|port| asked(port).is_some());
    let checked = !needs_health_check(new) || integer(new, "healthCheckNodePort").is_some_and(|port| port != 0);
    whole && checked && node_ports(new).all(|port| had.contains(&port))
}

/// Keeps the allocated fields that an update leaves out; fields that the new type does not need go, unless the update
/// sets them.
pub(super) fn inherit(new: &mut Value, old: &Value) {
    let (had, wants) = (needs(&old["spec"]), needs(&new["spec"]));
    let mut used: BTreeSet<i64> = items(&new["spec"], "ports").iter().filter_map(asked).collect();
    let of = |port: &Value| (integer(port, "port"), text(port, "protocol").to_owned());
    let before: Vec<_> =
        items(&old["spec"], "ports").iter().filter_map(|port| Some((of(port), asked(port)?))).collect();
    let (check, kept) = (needs_health_check(&new["spec"]), integer(&old["spec"], "healthCheckNodePort"));
    let Some(spec) = new.get_mut("spec") else { return };
    for port in items_mut(spec, "ports") {
        match asked(port) {
            None if had && wants => {
                let same = before.iter().find(|(other, number)| *other == of(port) && !used.contains(number));
                if let Some((_, number)) = same {
                    used.insert(*number);
                    port.set("nodePort", json!(number));
                }
            }
            Some(number) if had && !wants && before.iter().any(|(_, other)| *other == number) => {
                if let Some(port) = port.as_object_mut() {
                    port.remove("nodePort");
                }
            }
            _ => {}
        }
    }
    let asked = integer(spec, "healthCheckNodePort").filter(|port| *port != 0);
    if let Some(kept) = kept.filter(|port| *port != 0) {
        if check && asked.is_none() {
            spec.set("healthCheckNodePort", kept.into());
        } else if !check
            && asked == Some(kept)
            && let Some(spec) = object_mut(new, "spec")
        {
            spec.remove("healthCheckNodePort");
        }
    }
}

fn needs(spec: &Value) -> bool {
    match text(spec, "type") {
        "NodePort" => true,
        "LoadBalancer" => {
            spec["allocateLoadBalancerNodePorts"].is_null() || flag(spec, "allocateLoadBalancerNodePorts")
        }
        _ => false,
    }
}

fn needs_health_check(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_a_service_had_need_no_look_at_others() {
        let spec = |kind: &str, port: Value| json!({"type": kind, "ports": [{"port": 80, "protocol": "TCP", "nodePort": port}]});
        let old = spec("NodePort", json!(30_001));
        assert!(has_all(&old, &old) && has_all(&spec("ClusterIP", Value::Null), &old));
        assert!(!has_all(&spec("NodePort", json!(30_002)), &old), "another one");
        assert!(!has_all(&spec("NodePort", Value::Null), &old), "one is to be given");
        assert!(!has_all(&old, &spec("ClusterIP", Value::Null)), "it had none");
        let mut local = spec("LoadBalancer", json!(30_001));
        local["externalTrafficPolicy"] = "Local".into();
        assert!(!has_all(&local, &old), "the port of its health check is to be given");
        local["healthCheckNodePort"] = json!(30_003);
        assert!(!has_all(&local, &old) && has_all(&local, &local));
    }

    #[test]
    fn all_ports_of_a_service_are_found_in_one_way() {
        let services = crate::kinds::resources().into_iter().find(|one| one.kind == "Service").unwrap();
        let of = |ports: usize| {
            let ports: Vec<Value> = (0..ports).map(|n| json!({"port": n + 1, "protocol": "TCP"})).collect();
            json!({"metadata": {"name": "s", "namespace": "n"}, "spec": {"type": "NodePort", "ports": ports}})
        };
        let all = usize::try_from(LAST - FIRST + 1).unwrap();
        let mut service = of(all);
        allocate(&Taken::default(), &services, &mut service).unwrap();
        let given: BTreeSet<i64> = items(&service["spec"], "ports").iter().filter_map(asked).collect();
        assert_eq!((given.len(), given.first(), given.last()), (all, Some(&FIRST), Some(&LAST)));
        assert_eq!(allocate(&Taken::default(), &services, &mut of(all + 1)).unwrap_err().code, 500);
    }
}
