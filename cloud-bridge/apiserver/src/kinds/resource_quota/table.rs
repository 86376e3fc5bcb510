//! The row of a ResourceQuota.

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::columns::{AGE, NAME, Table, age, name};
use apimachinery::json::entries;
use apimachinery::quantity::Quantity;

/// Table of ResourceQuotas.
pub(super) const TABLE: Table<4> = Table {
    columns: [
        NAME,
        ("Request", "string", 0, "What objects and requests take, of what they may take."),
        ("Limit", "string", 0, "What limits take, of what they may take."),
        AGE,
    ],
    row,
};

/// The cells of one ResourceQuota.
fn row(quota: &Value, now: Timestamp) -> [Value; 4] {
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
    [name(quota), shown(false), shown(true), age(quota, now)]
}
