//! From request bytes to a checked object: duplicate keys, unknown fields and values of the wrong type, in
//! the API server's words. Knows no storage and no verbs.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A body that matches the kind's type.
#[derive(Debug, PartialEq)]
pub struct Decoded {
    /// The object with unknown fields and nulls dropped.
    pub value: Value,
    /// Paths of unknown fields, in the order of the object: `spec.containers[0].foo`.
    pub unknown: Vec<String>,
}

/// A typed check: the object through its Kubernetes type and back, or why it does not fit.
pub type Check = fn(&Value) -> Result<Decoded, String>;

/// Passes `value` through the type `T`.
pub fn check<T: DeserializeOwned + Serialize>(value: &Value) -> Result<Decoded, String> {
    let typed: T = serde_path_to_error::deserialize(value).map_err(|e| e.to_string())?;
    let out = serde_json::to_value(&typed).map_err(|e| e.to_string())?;
    Ok(Decoded { value: out, unknown: Vec::new() })
}
