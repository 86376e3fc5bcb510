//! Services.

pub(crate) mod cluster_ip;
mod families;
pub(crate) mod held;
pub(crate) mod node_port;
pub(crate) mod range;
mod table;
mod type_change;
pub(crate) mod validate;
mod warnings;

use k8s_openapi::api::core::v1;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::defaults::drop_zero;
use super::kind::{Kind, PLAIN, PROXY, Selectable, Sub, any_status, keep_status};
use crate::codec::decode::{self, Decoded};
use crate::patch::merge_keys::{CONDITIONS, META, Type, by_all, object};
use crate::resource::Serves;
use crate::resource::rules::Rules;
use apimachinery::json::{flag, items, items_mut, object_mut, remove, set_default, set_default_text, text};
use apimachinery::names;

pub(crate) static KIND: Kind = Kind {
    kind: "Service",
    plural: "services",
    singular: "service",
    short_names: &["svc"],
    categories: &["all"],
    namespaced: true,
    check: Some(check),
    rules: Rules {
        // They were bound to RFC 1035 until Kubernetes 1.36.
        name: names::dns_label,
        allow_create_on_update: true,
        return_deleted_object: true,
        cluster_ip: true,
        ..Rules::SPEC_AND_STATUS
    },
    default,
    prepare_create: |service| {
        service.set("status", json!({"loadBalancer": {}}));
        cluster_ips(service);
    },
    prepare_update,
    create: validate::create,
    update: validate::update,
    warnings: warnings::of,
    update_warnings: warnings::of,
    status: Some(any_status),
    subresources: &[Sub::other("proxy", ("", "ServiceProxyOptions"), PROXY, Serves::PodProxy)],
    table: &table::TABLE,
    fields: &[Selectable::text("spec.clusterIP", "/spec/clusterIP"), Selectable::text("spec.type", "/spec/type")],
    keys: &KEYS,
    ..PLAIN
};

static KEYS: Type = Type { fields: &[META, object("spec", &SPEC), object("status", &CONDITIONS)] };
static SPEC: Type = Type { fields: &[by_all("ports", &["port", "protocol"])] };

/// Checks the type, except a condition without a time: this field is not validated here (K8s pkg/apis/core/validation
/// `ValidateServiceStatusUpdate`), and Go's zero time is null.
fn check(service: &Value) -> Result<Decoded, String> {
    let timeless = |one: &&Value| one.is_object() && one["lastTransitionTime"].is_null();
    let all = || items(&service["status"], "conditions").iter();
    if all().find(timeless).is_none() {
        return decode::check::<v1::Service>(service);
    }
    let mut filled = service.clone();
    let Some(status) = filled.get_mut("status") else { return decode::check::<v1::Service>(service) };
    for one in items_mut(status, "conditions").filter(|one| timeless(&&**one)) {
        one.set("lastTransitionTime", "1970-01-01T00:00:00Z".into());
    }
    let mut decoded = decode::check::<v1::Service>(&filled)?;
    let places: Vec<bool> = all().map(|one| timeless(&one)).collect();
    if let Some(status) = decoded.value.get_mut("status") {
        for (one, timeless) in items_mut(status, "conditions").zip(places) {
            if timeless {
                remove(one, "lastTransitionTime");
            }
        }
    }
    Ok(decoded)
}

fn default(service: &mut Value) {
    let Some(spec) = service.get_mut("spec").filter(|s| s.is_object()) else { return };
    set_default_text(spec, "sessionAffinity", "None");
    set_default_text(spec, "type", "ClusterIP");
    match text(spec, "sessionAffinity") {
        "None" => drop(remove(spec, "sessionAffinityConfig")),
        "ClientIP" if spec.pointer("/sessionAffinityConfig/clientIP/timeoutSeconds").is_none_or(Value::is_null) => {
            spec.set("sessionAffinityConfig", serde_json::json!({"clientIP": {"timeoutSeconds": 10800}}));
        }
        _ => {}
    }
    for port in items_mut(spec, "ports") {
        set_default_text(port, "protocol", "TCP");
        let unset = match &port["targetPort"] {
            Value::Null => true,
            Value::String(name) => name.is_empty(),
            number => number.as_i64() == Some(0),
        };
        if unset {
            port.set("targetPort", port["port"].clone());
        }
        drop_zero(port, &["nodePort", "name"]);
    }
    let kind = text(spec, "type").to_owned();
    if ["NodePort", "LoadBalancer"].contains(&kind.as_str()) {
        set_default_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind != "ExternalName" {
        set_default_text(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set_default(spec, "allocateLoadBalancerNodePorts", true);
    }
    if !flag(spec, "publishNotReadyAddresses") {
        remove(spec, "publishNotReadyAddresses");
    }
}

fn prepare_update(new: &mut Value, old: &Value) {
    keep_status(new, old);
    addresses(new, old);
    if text(&new["spec"], "ipFamilyPolicy").is_empty() && text(&new["spec"], "type") != "ExternalName" {
        let chosen = old["spec"]["ipFamilyPolicy"].clone();
        if let (Some(spec), Value::String(_)) = (object_mut(new, "spec"), &chosen) {
            spec.insert("ipFamilyPolicy".to_owned(), chosen);
        }
    }
    cluster_ips(new);
    node_port::inherit(new, old);
    type_change::forget(new, old);
}

/// Keeps allocated values that a manifest omits, and makes `clusterIPs` follow a `clusterIP` that was changed alone
/// (K8s pkg/registry/core/service/storage `patchAllocatedValues`, `normalizeClusterIPs`).
fn addresses(new: &mut Value, old: &Value) {
    let none = |spec: &Value, field: &str| match field {
        "clusterIP" => text(spec, field).is_empty(),
        _ => items(spec, field).is_empty(),
    };
    let named = text(&new["spec"], "type") == "ExternalName" || text(&old["spec"], "type") == "ExternalName";
    for field in ["clusterIP", "clusterIPs"] {
        if !named
            && none(&new["spec"], field)
            && let (Some(spec), value @ (Value::String(_) | Value::Array(_))) =
                (object_mut(new, "spec"), &old["spec"][field])
        {
            spec.insert(field.to_owned(), value.clone());
        }
    }
    let spec = &new["spec"];
    let same = |field: &str| spec[field] == old["spec"][field];
    if !same("clusterIP")
        && same("clusterIPs")
        && let Some(spec) = new.get_mut("spec")
    {
        remove(spec, "clusterIPs");
    }
}

/// `clusterIPs` repeats `clusterIP`. Setting only the former is an error.
fn cluster_ips(service: &mut Value) {
    let ip = text(&service["spec"], "clusterIP").to_owned();
    if ip.is_empty()
        && text(&service["spec"], "type") != "ExternalName"
        && !items(&service["spec"], "clusterIPs").is_empty()
    {
        return;
    }
    if let Some(spec) = object_mut(service, "spec") {
        if ip.is_empty() {
            spec.remove("clusterIPs");
        } else {
            spec.entry("clusterIPs").or_insert_with(|| json!([ip]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_stay_and_follow_each_other() {
        let service = |more: Value| {
            let mut spec = json!({"type": "ClusterIP"});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({ "spec": spec })
        };
        let old = service(json!({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"]}));
        for (given, ip, ips) in [
            (json!({}), "10.96.0.9", json!(["10.96.0.9"])),
            (json!({"clusterIP": "10.96.0.8"}), "10.96.0.8", json!(["10.96.0.8"])),
            (json!({"clusterIP": "10.96.0.8", "clusterIPs": ["10.96.0.9"]}), "10.96.0.8", json!(["10.96.0.8"])),
            (json!({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.8"]}), "10.96.0.9", json!(["10.96.0.8"])),
            (json!({"clusterIPs": ["10.96.0.8"]}), "10.96.0.9", json!(["10.96.0.8"])),
        ] {
            let mut new = service(given);
            prepare_update(&mut new, &old);
            assert_eq!((&new["spec"]["clusterIP"], &new["spec"]["clusterIPs"]), (&json!(ip), &ips));
        }
    }

    #[test]
    fn a_condition_may_have_no_time() {
        let of = |time: Value| {
            let condition =
                json!({"type": "A", "status": "True", "reason": "R", "message": "", "lastTransitionTime": time});
            json!({"metadata": {"name": "s"}, "status": {"conditions": [condition, {"type": "B", "status": "True"}]}})
        };
        let decoded = check(&of(Value::Null)).unwrap().value;
        assert_eq!(
            decoded["status"]["conditions"][0],
            json!({"type": "A", "status": "True", "reason": "R", "message": ""})
        );
        assert!(check(&of("yesterday".into())).is_err());
        assert!(check(&json!({"status": {"conditions": [1, {}]}})).is_err());
    }
}
