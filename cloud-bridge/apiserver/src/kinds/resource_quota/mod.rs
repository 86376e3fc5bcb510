//! ResourceQuotas: how much the objects of a namespace may use together. Creations are charged by admission
//! (`admission/resource_quota`); the controller recounts after deletions (`controllers/resource_quota.rs`).

mod table;
#[cfg(test)]
mod tests;
pub(crate) mod usage;
mod validate;

use k8s_openapi::api::core::v1;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::defaults::drop_zero;
use super::kind::{Kind, PLAIN, keep_status};
use crate::codec::decode::{self, Decoded};
use crate::resource::rules::Rules;
use apimachinery::quantity::{Quantity, canonicalize_list};

/// The storage of the quotas.
pub(crate) const STORAGE: &str = "resourcequotas";

pub(crate) static KIND: Kind = Kind {
    kind: "ResourceQuota",
    plural: "resourcequotas",
    singular: "resourcequota",
    short_names: &["quota"],
    namespaced: true,
    check: Some(check),
    rules: Rules { return_deleted_object: true, ..Rules::SPEC_AND_STATUS },
    default,
    prepare_create: |quota| quota.set("status", json!({})),
    prepare_update: keep_status,
    create: validate::create,
    update: validate::update,
    warnings,
    status: Some(validate::status),
    table: &table::TABLE,
    ..PLAIN
};

/// Amounts may be numbers.
fn check(quota: &Value) -> Result<Decoded, String> {
    let mut quota = quota.clone();
    for (part, list) in [("spec", "hard"), ("status", "hard"), ("status", "used")] {
        if let Some(list) = quota.get_mut(part).and_then(|part| part.get_mut(list)) {
            decode::amounts(list)?;
        }
    }
    decode::check::<v1::ResourceQuota>(&quota)
}

fn default(quota: &mut Value) {
    for (part, lists) in [("spec", ["hard", "scopes"]), ("status", ["hard", "used"])] {
        let Some(part) = quota.get_mut(part) else { continue };
        for list in lists {
            if let Some(list) = part.get_mut(list) {
                canonicalize_list(list);
            }
        }
        drop_zero(part, &lists);
    }
}

/// Requests beyond the limits can never be used up.
fn warnings(quota: &Value) -> Vec<String> {
    let hard = &quota["spec"]["hard"];
    let get = |name: &str| Quantity::from_value(&hard[name]);
    let mut told = Vec::new();
    for name in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let (requests, limits) = (format!("requests.{name}"), format!("limits.{name}"));
        let bare = get(name).filter(|_| matches!(name, "cpu" | "memory")).map(|amount| (name.to_owned(), amount));
        let request = get(&requests).map(|amount| (requests, amount)).or(bare);
        if let (Some((asked, request)), Some(limit)) = (request, get(&limits))
            && request > limit
        {
            told.push(format!("ResourceQuota {asked} ({request}) should be less than {limits} ({limit})"));
        }
    }
    told
}
