//! LimitRanges: limits of a container, a pod or a claim, and their defaults (`admission/limit_ranger`).

#[cfg(test)]
mod tests;
mod validate;

use k8s_openapi::api::core::v1;
use serde_json::{Map, Value};

use super::defaults::drop_zero;
use super::kind::{Kind, PLAIN};
use crate::codec::decode::{self, Decoded};
use crate::resource::rules::Rules;
use apimachinery::json::{items_mut, text};
use apimachinery::meta;
use apimachinery::quantity::canonicalize_list;

/// The storage of the ranges.
pub(crate) const STORAGE: &str = "limitranges";
const LISTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];

pub(crate) static KIND: Kind = Kind {
    kind: "LimitRange",
    plural: "limitranges",
    singular: "limitrange",
    short_names: &["limits"],
    namespaced: true,
    check: Some(check),
    rules: Rules { structures: &["spec"], allow_create_on_update: true, ..Rules::BUILT_IN },
    default,
    prepare_create,
    create: validate::range,
    update: |new, _| validate::range(new),
    ..PLAIN
};

/// Amounts may be numbers.
fn check(range: &Value) -> Result<Decoded, String> {
    let mut range = range.clone();
    for limit in range.get_mut("spec").into_iter().flat_map(|spec| items_mut(spec, "limits")) {
        for list in LISTS {
            if let Some(list) = limit.get_mut(list) {
                decode::amounts(list)?;
            }
        }
    }
    decode::check::<v1::LimitRange>(&range)
}

fn prepare_create(range: &mut Value) {
    if meta::text(range, "name").is_empty() {
        meta::set(range, "name", meta::new_uid().into());
    }
}

fn default(range: &mut Value) {
    let Some(spec) = range.get_mut("spec") else { return };
    for limit in items_mut(spec, "limits") {
        for list in LISTS {
            if let Some(list) = limit.get_mut(list) {
                canonicalize_list(list);
            }
        }
        if text(limit, "type") == "Container" {
            fill(limit);
        }
        drop_zero(limit, &LISTS);
    }
}

/// Defaults of a container: within the minimum and maximum (SetDefaults_LimitRangeItem of
/// pkg/apis/core/v1/defaults.go).
fn fill(limit: &mut Value) {
    let list = |limit: &Value, name: &str| limit[name].as_object().cloned().unwrap_or_default();
    let mut most = list(limit, "default");
    adopt(&mut most, list(limit, "max"));
    let mut requests = list(limit, "defaultRequest");
    adopt(&mut requests, most.clone());
    adopt(&mut requests, list(limit, "min"));
    if let Some(limit) = limit.as_object_mut() {
        limit.insert("default".into(), most.into());
        limit.insert("defaultRequest".into(), requests.into());
    }
}

fn adopt(list: &mut Map<String, Value>, more: Map<String, Value>) {
    for (name, amount) in more {
        list.entry(name).or_insert(amount);
    }
}
