//! Bodies that are not objects of a resource (options, reviews, subresources), read as their Kubernetes type.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::status::{ApiError, ApiResult};
use crate::codec::decode::check;
use crate::codec::parse::{TENANT_MEMORY_MAX, parse_within, reason, shown_path};

/// Reads the body of a subresource or of options as the type `T`, which has no unknown fields then.
///
/// # Errors
/// 400 if the body is not a JSON object, or a field has the wrong type.
pub(crate) fn read<T: DeserializeOwned + Serialize>(body: &Bytes, kind: &str) -> ApiResult<Value> {
    let refuse = |why: String| ApiError::bad_request(format!("the body cannot be handled as a {kind}: {why}"));
    let (value, _) = parse_within(body, TENANT_MEMORY_MAX).map_err(|e| refuse(reason(&e)))?;
    self::value::<T>(value, kind)
}

/// Same as `read`, for a parsed value. Clients use the group and version under which they know the kind.
pub(crate) fn value<T: DeserializeOwned + Serialize>(mut value: Value, kind: &str) -> ApiResult<Value> {
    let refuse = |why: String| ApiError::bad_request(format!("the body cannot be handled as a {kind}: {why}"));
    let Some(map) = value.as_object_mut() else { return Err(refuse("it is no JSON object".into())) };
    map.remove("apiVersion");
    match map.remove("kind") {
        None | Some(Value::Null) => {}
        Some(Value::String(given)) if given == kind || given.is_empty() => {}
        Some(given) => return Err(refuse(format!("its kind is {}", shown_path(&given.to_string())))),
    }
    check::<T>(&value).map(|decoded| decoded.value).map_err(refuse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_of_subresources_are_objects_with_typed_fields() {
        use k8s_openapi::api::core::v1::Binding;
        let read = |text: &'static str| read::<Binding>(&Bytes::from_static(text.as_bytes()), "Binding");
        for wrong in ["[]", "1", "\"\"", "null", "", "{", r#"{"metadata": {"annotations": {"a": 1}}}"#] {
            assert_eq!(read(wrong).unwrap_err().code, 400, "{wrong}");
        }
        assert_eq!(read(r#"{"target": {"name": "n"}}"#).unwrap()["target"]["name"], "n");
    }
}
