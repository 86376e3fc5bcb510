//! Nodes.

mod table;
mod validate;

use edge_protocol::json::SetField;
use k8s_openapi::api::core::v1;
use serde_json::Value;

use super::defaults::drop_zero;
use super::kind::{Kind, PLAIN, Selectable, Sub, keep_status};
use crate::codec::decode;
use crate::patch::merge_keys::{META, Type, by, object, set};
use crate::resource::Serves;
use crate::resource::rules::Rules;
use apimachinery::json::{items_mut, object_mut};
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
    status: Some(validate::update),
    subresources: &[Sub::other("proxy", ("", "NodeProxyOptions"), &["get"], Serves::Proxy)],
    columns: table::COLUMNS,
    row: table::row,
    fields: &[Selectable::flag("spec.unschedulable", "/spec/unschedulable")],
    keys: &KEYS,
    ..PLAIN
};

/// How lists of a node merge.
pub(crate) static KEYS: Type = Type { fields: &[META, object("spec", &SPEC), object("status", &STATUS)] };
static SPEC: Type = Type { fields: &[set("podCIDRs")] };
static STATUS: Type = Type { fields: &[by("addresses", &["type"]), by("conditions", &["type"])] };

/// Allocatable equals capacity unless said.
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
