//! Nodes.

mod table;
mod validate;

use k8s_openapi::api::core::v1;
use sampan_json::SetField;
use serde_json::Value;

use super::cidr;
use super::defaults::drop_zero;
use super::kind::{Kind, PLAIN, Selectable, Sub, keep_status};
use crate::codec::decode;
use crate::patch::merge_keys::{META, Type, by, object, set};
use crate::resource::Serves;
use crate::resource::rules::Rules;
use apimachinery::json::{items, items_mut, object_mut, present, text};
use apimachinery::quantity::canonicalize_list;

pub(crate) static KIND: Kind = Kind {
    kind: "Node",
    plural: "nodes",
    singular: "node",
    short_names: &["no"],
    check: Some(decode::check::<v1::Node>),
    rules: Rules::SPEC_AND_STATUS,
    default,
    prepare_update: keep_status,
    create: validate::create,
    update: validate::update,
    warnings,
    update_warnings: warnings,
    status: Some(validate::update),
    subresources: &[Sub::other("proxy", ("", "NodeProxyOptions"), &["get"], Serves::Proxy)],
    table: &table::TABLE,
    fields: &[Selectable::flag("spec.unschedulable", "/spec/unschedulable")],
    keys: &KEYS,
    ..PLAIN
};

/// K8s pkg/registry/core/node/strategy.go `nodeWarnings`.
fn warnings(node: &Value) -> Vec<String> {
    let spec = &node["spec"];
    let mut told = Vec::new();
    if present(spec, "configSource").is_some() {
        told.push("spec.configSource: the feature is removed".to_owned());
    }
    if !text(spec, "externalID").is_empty() {
        told.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    for (i, range) in items(spec, "podCIDRs").iter().enumerate() {
        told.extend(cidr::warnings(&format!("spec.podCIDRs[{i}]"), range.as_str().unwrap_or_default()));
    }
    told
}

/// How lists of a node merge.
pub(crate) static KEYS: Type = Type { fields: &[META, object("spec", &SPEC), object("status", &STATUS)] };
static SPEC: Type = Type { fields: &[set("podCIDRs")] };
static STATUS: Type = Type { fields: &[by("addresses", &["type"]), by("conditions", &["type"])] };

/// Allocatable defaults to capacity.
fn default(node: &mut Value) {
    object_mut(node, "spec");
    if let Some(spec) = node.get_mut("spec") {
        drop_zero(spec, &["unschedulable", "taints", "podCIDR", "providerID"]);
        for taint in items_mut(spec, "taints") {
            drop_zero(taint, &["value"]);
        }
    }
    let Some(status) = node.get_mut("status").filter(|s| s.is_object()) else { return };
    if status["allocatable"].is_null() && !status["capacity"].is_null() {
        status.set("allocatable", status["capacity"].clone());
    }
    for list in ["capacity", "allocatable"] {
        if let Some(list) = status.get_mut(list) {
            canonicalize_list(list);
        }
    }
}
