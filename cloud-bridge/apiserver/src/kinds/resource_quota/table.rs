//! The row of a ResourceQuota.

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::columns::{AGE, NAME, Spec, age, name};
use apimachinery::json::entries;
use apimachinery::quantity::Quantity;

/// Columns of ResourceQuotas.
pub(super) const COLUMNS: &[Spec] = &[
    NAME,
    ("Request", "string", 0, "What objects and requests take, of what they may take."),
    ("Limit", "string", 0, "What limits take, of what they may take."),
    AGE,
];

/// The cells of one ResourceQuota.
pub(super) fn row(quota: &Value, now: Timestamp) -> Vec<Value> {
    let status = &quota["status"];
    let mut names: Vec<&String> = entries(status, "hard").map(|(name, _)| name).collect();
    names.sort_unstable();
    let shown = |limits: bool| -> Value {
        let wanted = names.iter().filter(|name| name.starts_with("limits.") == limits);
        let one = |name: &&&String| {
            let amount = |list: &str| Quantity::from_value(&status[list][name.as_str()]).unwrap_or(Quantity::ZERO);
            format!("{name}: {}/{}", amount("used"), amount("hard"))
        };
        wanted.map(|name| one(&name)).collect::<Vec<_>>().join(", ").into()
    };
    vec![name(quota), shown(false), shown(true), age(quota, now)]
}
