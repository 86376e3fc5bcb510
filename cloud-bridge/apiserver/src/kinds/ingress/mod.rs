//! Ingresses, stored as in Kubernetes. Nothing acts on them here, and every write gets a warning about that.

#[cfg(test)]
mod tests;
mod validate;

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::networking::v1;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::columns::{AGE, NAME, Table, age, name};
use super::defaults::drop_zero;
use super::kind::{Kind, PLAIN, keep_status, spec_changed};
use crate::codec::decode;
use crate::patch::merge_keys::{META, Type, object, one};
use crate::resource::rules::Rules;
use apimachinery::json::{items, present, text};

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "Ingress",
    plural: "ingresses",
    singular: "ingress",
    short_names: &["ing"],
    namespaced: true,
    check: Some(decode::check::<v1::Ingress>),
    rules: Rules::SPEC_AND_STATUS,
    generation: Some(spec_changed),
    stored_only: true,
    default,
    prepare_create: |ingress| ingress.set("status", json!({"loadBalancer": {}})),
    prepare_update: keep_status,
    create: validate::create,
    update: validate::update,
    warnings,
    keys: &KEYS,
    status: Some(validate::status),
    table: &Table {
        columns: [
            NAME,
            ("Class", "string", 0, "The class whose controller looks after it."),
            ("Hosts", "string", 0, "Hosts that requests must be for."),
            ("Address", "string", 0, "Where requests arrive."),
            ("Ports", "string", 0, "Ports that are open."),
            AGE,
        ],
        row,
    },
    ..PLAIN
};

static KEYS: Type = Type { fields: &[META, object("spec", &SPEC)] };
static SPEC: Type = Type { fields: &[object("defaultBackend", &BACKEND)] };
static BACKEND: Type = Type { fields: &[one("resource")] };

fn default(ingress: &mut Value) {
    if let Some(spec) = ingress.get_mut("spec") {
        drop_zero(spec, &["rules", "tls"]);
    }
    if let Some(status) = ingress.get_mut("status").filter(|status| status.get("loadBalancer").is_none()) {
        status.set("loadBalancer", json!({}));
    }
}

fn warnings(ingress: &Value) -> Vec<String> {
    let old = present(&ingress["metadata"]["annotations"], validate::CLASS_ANNOTATION).is_some();
    if !old || present(&ingress["spec"], "ingressClassName").is_some() {
        return Vec::new();
    }
    let name = validate::CLASS_ANNOTATION;
    vec![format!("annotation {name:?} is deprecated, please use 'spec.ingressClassName' instead")]
}

/// Hosts shown before `+ N more...`.
const HOSTS: usize = 3;

fn row(ingress: &Value, now: Timestamp) -> [Value; 6] {
    let spec = &ingress["spec"];
    let rules = items(spec, "rules");
    let named: Vec<&str> = rules.iter().map(|rule| text(rule, "host")).filter(|host| !host.is_empty()).collect();
    let mut hosts = named.iter().take(HOSTS).copied().collect::<Vec<_>>().join(",");
    // As Kubernetes counts: rules after the third host that is shown.
    let last = rules.iter().enumerate().filter(|(_, rule)| !text(rule, "host").is_empty()).nth(HOSTS - 1);
    if hosts.is_empty() {
        hosts = "*".into();
    } else if last.is_some_and(|(place, _)| place + 1 < rules.len()) {
        hosts = format!("{hosts} + {} more...", rules.len() - HOSTS);
    }
    let addresses: BTreeSet<&str> = items(&ingress["status"]["loadBalancer"], "ingress")
        .iter()
        .map(|one| Some(text(one, "ip")).filter(|ip| !ip.is_empty()).unwrap_or(text(one, "hostname")))
        .filter(|address| !address.is_empty())
        .collect();
    let class = present(spec, "ingressClassName").and_then(Value::as_str).unwrap_or("<none>");
    let ports = if items(spec, "tls").is_empty() { "80" } else { "80, 443" };
    [
        name(ingress),
        class.into(),
        hosts.into(),
        addresses.into_iter().collect::<Vec<_>>().join(",").into(),
        ports.into(),
        age(ingress, now),
    ]
}
