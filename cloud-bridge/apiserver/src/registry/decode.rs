//! Reads the body of a request as an object of its resource.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::context::Context;
use crate::codec::bounds;
use crate::codec::decode::{Decoded, quantities};
use crate::codec::parse;
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::Stored;

impl Context<'_> {
    /// Reads a body as an object of the resource, in stored form: typed, without kind and apiVersion. `before` is the
    /// object that it replaces.
    pub(crate) fn decode(&mut self, body: &Bytes, before: Option<&Arc<Stored>>) -> ApiResult<Value> {
        let resource = Arc::clone(&self.resource);
        let read = parse::parse_within(body, resource.body_memory());
        let (value, duplicates) = read.map_err(|e| self.unrecognized(&parse::reason(&e), body))?;
        self.check_kind(&value, body)?;
        self.bounded_untyped(&value, before.map(Arc::as_ref))?;
        self.typed(value, duplicates, Some(body)).map_err(|text| {
            ApiError::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {text}",
                kind = resource.kind,
                version = resource.version,
            ))
        })
    }

    fn unrecognized(&self, why: &str, body: &Bytes) -> ApiError {
        let shown: String = String::from_utf8_lossy(body).chars().take(64).collect();
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {why} ({shown})",
            self.resource.kind
        ))
    }

    fn check_kind(&self, value: &Value, body: &Bytes) -> ApiResult<()> {
        if !value.is_object() {
            let found = match value {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Number(_) => "number",
                Value::Bool(_) => "bool",
                _ => return Ok(()),
            };
            let target = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
            return Err(
                self.unrecognized(&format!("json: cannot unmarshal {found} into Go value of type {target}"), body)
            );
        }
        let kind = value["kind"].as_str().unwrap_or_default();
        let version = value["apiVersion"].as_str().unwrap_or_default();
        let expected = self.resource.api_version();
        if self.resource.is_custom() && self.path.subresource.is_empty() {
            for (field, found) in [("Kind", kind), ("apiVersion", version)] {
                if found.is_empty() {
                    let shown: String = String::from_utf8_lossy(body).chars().take(200).collect();
                    return Err(ApiError::bad_request(format!(
                        "the object provided is unrecognized (must be of type {}): Object '{field}' is missing in '{shown}'",
                        self.resource.kind
                    )));
                }
            }
        }
        let refuse = |given: &str, why: String| {
            let version = &self.resource.version;
            Err(ApiError::bad_request(format!(
                "{given} in version {version:?} cannot be handled as a {}: {why}",
                self.resource.kind
            )))
        };
        if !version.is_empty() && version != expected {
            return refuse(&self.resource.kind, format!("no kind {kind:?} is registered for version {version:?}"));
        }
        if !kind.is_empty() && kind != self.resource.kind {
            let own = if self.inner.registry.by_kind(&expected, kind).is_some() {
                format!("converting ({}.{kind}) to ({}): unknown conversion", self.resource.version, self.resource.kind)
            } else {
                format!("no kind {kind:?} is registered for version {expected:?}")
            };
            return refuse(kind, own);
        }
        Ok(())
    }

    /// The typed check with the field validation that the query asks for.
    ///
    /// # Errors
    /// A type error or, under `Strict`, the `strict decoding error`.
    pub(crate) fn typed(
        &mut self,
        value: Value,
        duplicates: Vec<String>,
        source: Option<&Bytes>,
    ) -> Result<Value, String> {
        let Decoded { value, unknown } = self.checked(value)?;
        let mut complaints = complaints(unknown, duplicates, source);
        // A verb may run again.
        complaints.splice(0..0, self.strict.clone());
        match self.query.text("fieldValidation") {
            _ if complaints.is_empty() => {}
            "Strict" => return Err(format!("strict decoding error: {}", complaints.join(", "))),
            "Ignore" => {}
            _ => self.warnings.extend(complaints),
        }
        Ok(value)
    }

    /// Refuses an object that is larger than the limit of its kind, and than it was before.
    ///
    /// # Errors
    /// 413 with the exceeded limit.
    pub(crate) fn bounded(&self, object: &Value, before: Option<&Value>) -> ApiResult<()> {
        let values = if self.resource.is_of_tenants() { bounds::VALUES_MAX } else { usize::MAX };
        bounds::within(object, before, values).map_err(|why| {
            let mut error = ApiError::too_large(0);
            error.message = why;
            error
        })
    }

    /// Refuses a body with many more values than the object may have, before its typed form takes more memory than the
    /// body. Unknown fields and nulls may be removed, so some more are allowed.
    fn bounded_untyped(&self, body: &Value, before: Option<&Stored>) -> ApiResult<()> {
        const ROUGHLY: usize = bounds::VALUES_MAX / 4 * 5;
        if !self.resource.is_of_tenants() || bounds::values(body) <= ROUGHLY {
            return Ok(());
        }
        match before {
            Some(before) if bounds::values(before.value()) > bounds::VALUES_MAX => Ok(()),
            _ => self.bounded(body, None),
        }
    }

    /// The object in stored form, and its unknown fields.
    ///
    /// # Errors
    /// A type error.
    pub(crate) fn checked(&self, mut value: Value) -> Result<Decoded, String> {
        if let Some(map) = value.as_object_mut() {
            map.remove("kind");
            map.remove("apiVersion");
        }
        let Decoded { mut value, unknown } = match self.resource.decode {
            Some(check) => {
                quantities(&mut value);
                check(&value)?
            }
            None => self.resource.strategy().decode(value)?,
        };
        if let Some(map) = value.as_object_mut() {
            map.remove("kind");
            map.remove("apiVersion");
            for field in self.resource.rules().structures {
                map.entry(*field).or_insert_with(|| Value::Object(serde_json::Map::new()));
            }
            map.entry("metadata").or_insert_with(|| Value::Object(serde_json::Map::new()));
        }
        self.resource.to_stored(&mut value);
        Ok(Decoded { value, unknown })
    }
}

/// Errors of fields, in the order of the request.
fn complaints(unknown: Vec<String>, duplicates: Vec<String>, source: Option<&Bytes>) -> Vec<String> {
    if unknown.is_empty() && duplicates.is_empty() {
        return Vec::new();
    }
    let wanted: Vec<String> = unknown.iter().chain(&duplicates).cloned().collect();
    let places = source.map(|body| parse::places(body, &wanted)).unwrap_or_default();
    let place = |path: &str| places.get(path).copied().unwrap_or(usize::MAX);
    let mut found: Vec<(usize, String)> =
        unknown.iter().map(|path| (place(path), format!("unknown field {path:?}"))).collect();
    found.extend(duplicates.iter().map(|path| (place(path), format!("duplicate field {path:?}"))));
    found.sort_by_key(|(place, _)| *place);
    found.truncate(parse::COMPLAINTS_MAX);
    found.into_iter().map(|(_, text)| text).collect()
}
