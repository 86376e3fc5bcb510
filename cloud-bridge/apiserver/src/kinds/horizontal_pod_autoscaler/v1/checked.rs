//! Checks of values that annotations give.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::codec::decode;
use crate::kinds::horizontal_pod_autoscaler::check;

/// Whether a value of an annotation has the type that its field is to have.
pub(super) fn typed<T: DeserializeOwned + Serialize>(value: &Value) -> bool {
    decode::check::<Holder<T>>(&json!({ "value": value })).is_ok()
}

/// `check` reads objects.
#[derive(serde::Deserialize, Serialize)]
struct Holder<T> {
    value: T,
}

/// Turns the amount at a place into canonical text; false if it is not an amount.
pub(super) fn amount(value: &mut Value) -> bool {
    let is = check::amount(value).is_ok();
    apimachinery::quantity::canonicalize(value);
    is
}
