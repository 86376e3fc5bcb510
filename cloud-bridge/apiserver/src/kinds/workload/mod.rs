//! Common code of kinds that run pods: the template, the selector that must match it, amounts, counts of a status,
//! columns.

pub(super) mod amount;
pub(super) mod selector;
pub(super) mod status;
pub(super) mod table;
pub(super) mod template;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::codec::decode::{self, Decoded};
use crate::patch::merge_keys::{CONDITIONS, META, Type, object};
use apimachinery::json::{present, remove, text};
use apimachinery::names;

/// How lists of a kind merge that has a template and conditions.
pub(super) static KEYS: Type = Type { fields: &[META, object("spec", &SPEC), object("status", &CONDITIONS)] };
/// How lists of its spec merge.
pub(super) static SPEC: Type = Type { fields: &[object("template", &template::KEYS)] };

/// Checks the type. The type turns a missing selector into an empty one, whose refusal has another message.
pub(super) fn check<T: DeserializeOwned + Serialize>(value: &Value) -> Result<Decoded, String> {
    let mut decoded = decode::check::<T>(value)?;
    if let Some(spec) = decoded.value.get_mut("spec")
        && present(&value["spec"], "selector").is_none()
    {
        remove(spec, "selector");
    }
    Ok(decoded)
}

/// Pods are named after it, and their hosts after them.
pub(super) fn name_warning(workload: &Value) -> Vec<String> {
    let wrong = names::dns_label(text(&workload["metadata"], "name"));
    if wrong.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is \
         recommended: [{}]",
        wrong.join(" ")
    )]
}
