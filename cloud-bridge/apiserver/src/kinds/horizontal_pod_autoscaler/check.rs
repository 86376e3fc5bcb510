//! The typed check of a body, in which amounts may be numbers.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{behavior, metric};
use crate::codec::decode::{self, Decoded};
use apimachinery::json::items_mut;
use apimachinery::quantity::Quantity;

/// Passes an object of either version through its type.
pub(super) fn check<T: DeserializeOwned + Serialize>(given: &Value) -> Result<Decoded, String> {
    let mut autoscaler = given.clone();
    if let Some(spec) = autoscaler.get_mut("spec") {
        items_mut(spec, "metrics").try_for_each(|one| metric::amounts(one, amount))?;
        spec.get_mut("behavior").map_or(Ok(()), |behavior| behavior::tolerances(behavior, amount))?;
    }
    if let Some(status) = autoscaler.get_mut("status") {
        items_mut(status, "currentMetrics").try_for_each(|one| metric::amounts(one, amount))?;
    }
    decode::check::<T>(&autoscaler)
}

/// Turns an amount into text, and refuses other values.
pub(super) fn amount(value: &mut Value) -> Result<(), String> {
    if value.is_number() {
        *value = Value::String(value.to_string());
    }
    match value {
        Value::String(text) => Quantity::parse(text).map(drop).map_err(|wrong| wrong.to_string()),
        _ => Ok(()),
    }
}
