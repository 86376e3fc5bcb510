//! The verbs on stored resources. Each runs to its end under the storage's lock, without awaiting, so that its data is
//! unchanged between its read and its write.

pub(crate) mod account;
pub(crate) mod apply;
pub(crate) mod cel;
pub(crate) mod managed_fields;
pub(crate) mod metrics;
pub(crate) mod reviews;
pub(crate) mod subresource;
pub(crate) mod write;

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod draft;
pub(crate) mod list;
pub(crate) mod patch;
pub(crate) mod update;

use std::sync::{Arc, MutexGuard};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;

use super::resource::Resource;
use super::state::Inner;
use super::storage::{Store, StoreError, Stored};
use crate::admission::attributes::Attributes;
use crate::auth::attributes as auth;
use crate::auth::request_info::{Query, ResourcePath};
use crate::codec::bounds;
use crate::codec::decode::{Decoded, quantities};
use crate::codec::parse;
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::field::FieldError;
use apimachinery::flow::Flow;
use apimachinery::key::ObjectKey;
use apimachinery::user::UserInfo;

/// One request on one resource.
pub(crate) struct Context<'a> {
    pub(crate) inner: &'a Arc<Inner>,
    pub user: &'a UserInfo,
    /// The client whose share of turns the request uses.
    pub(crate) flow: &'a Flow,
    pub resource: Arc<Resource>,
    pub path: &'a ResourcePath,
    pub query: &'a Query,
    /// `create`, `update`, `patch`…
    pub verb: String,
    pub now: Timestamp,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// The writer, for managedFields.
    pub(crate) writer: managed_fields::Writer,
    /// Error of strict parsing of the body.
    pub(crate) strict: Option<String>,
    /// Questions about validation rules.
    pub(crate) cel: cel::Asked,
    /// Work on other threads.
    pub(crate) aside: draft::Aside,
    /// This is worked out beside the thread: whatever can be known beforehand is.
    pub(crate) foresees: bool,
    /// A pod was refused that has its account in a moment.
    pub(crate) awaits_account: bool,
}

/// Answer of a verb.
pub(crate) enum Answer {
    /// An object of the resource with its HTTP code, whose bytes are at hand.
    Stored(u16, Arc<Stored>),
    /// A list of objects.
    List(list::Listed),
    /// A list that is too large to be at hand.
    Large(list::Large),
    /// Anything else, complete.
    Plain(u16, Value),
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        log::error!("{error}");
        Self::internal(error)
    }
}

impl Context<'_> {
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.inner.store()
    }

    /// Attributes of the request for admission.
    pub(crate) fn attributes(&self) -> Attributes<'_> {
        Attributes { inner: self.inner, user: self.user, resource: Arc::clone(&self.resource), path: self.path }
    }

    /// A change of a missing object creates it, which needs another right (K8s apiserver endpoints/handlers/update.go
    /// `withAuthorization`).
    pub(crate) fn may_create(&self) -> ApiResult<()> {
        let path = self.path.clone();
        let create = auth::Attributes { verb: "create".to_owned(), path, selected_node: None, url: None };
        self.inner.authorizer.authorize(self.user, &create)
    }

    /// Looks its resource up again: the definition may have been changed or deleted while the request waited.
    pub(crate) fn look_up(&mut self) -> ApiResult<()> {
        let path = self.path;
        let found = self.inner.registry.find(&path.group, &path.version, &path.resource);
        self.resource = found.ok_or_else(ApiError::no_resource)?;
        Ok(())
    }

    /// The key that the path names.
    pub(crate) fn key(&self) -> ObjectKey {
        self.key_of(&self.path.name)
    }

    /// The key of another name in the path's namespace.
    pub(crate) fn key_of(&self, name: &str) -> ObjectKey {
        let namespace = if self.resource.namespaced { self.path.namespace.clone() } else { String::new() };
        ObjectKey { namespace, name: name.to_owned() }
    }

    /// True when `dryRun=All`. Checks the options that all writes have.
    pub(crate) fn dry_run(&self) -> ApiResult<bool> {
        let kind = match self.verb.as_str() {
            "create" => "CreateOptions",
            "update" => "UpdateOptions",
            _ => "PatchOptions",
        };
        let manager = self.query.text("fieldManager");
        let error = if manager.len() > managed_fields::MANAGER_MAX {
            Some(FieldError::too_long("fieldManager", managed_fields::MANAGER_MAX))
        } else if manager.chars().any(char::is_control) {
            Some(FieldError::invalid("fieldManager", &manager.into(), "must not contain control characters"))
        } else {
            None
        };
        if let Some(error) = error {
            return Err(ApiError::options(kind, &error));
        }
        let dry = dry_run(self.query.all("dryRun"), kind)?;
        field_validation(self.query.text("fieldValidation"), kind)?;
        Ok(dry)
    }

    /// The stored object that the path names.
    pub(crate) fn current(&self, store: &Store) -> ApiResult<Arc<Stored>> {
        store
            .get(&self.resource.storage, &self.key())?
            .ok_or_else(|| ApiError::not_found(&self.resource, &self.path.name))
    }

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

    /// Fills in the namespace of the path, or refuses another one.
    pub(crate) fn match_namespace(&self, value: &mut Value) -> ApiResult<()> {
        let expected = if self.resource.namespaced { self.path.namespace.as_str() } else { "" };
        let found = value["metadata"]["namespace"].as_str().unwrap_or_default();
        if found == expected {
            return Ok(());
        }
        if found.is_empty() {
            apimachinery::meta::set(value, "namespace", expected.into());
            return Ok(());
        }
        Err(ApiError::bad_request(if expected.is_empty() {
            "namespace not allowed on cluster-scoped object".to_owned()
        } else {
            "the namespace of the provided object does not match the namespace sent on the request".to_owned()
        }))
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

/// Interprets dryRun values.
pub(crate) fn dry_run<'a>(values: impl Iterator<Item = &'a str>, kind: &str) -> ApiResult<bool> {
    let mut dry = false;
    for value in values {
        match value {
            "" => {}
            "All" => dry = true,
            other => {
                let error = FieldError::not_supported_text("dryRun", &format!("[{other:?}]"), &["All"]);
                return Err(ApiError::options(kind, &error));
            }
        }
    }
    Ok(dry)
}

/// Refuses an unknown way of field validation (apimachinery pkg/apis/meta/v1/validation `ValidateFieldValidation`).
fn field_validation(asked: &str, kind: &str) -> ApiResult<()> {
    const KNOWN: [&str; 4] = ["", "Ignore", "Strict", "Warn"];
    if KNOWN.contains(&asked) {
        return Ok(());
    }
    Err(ApiError::options(kind, &FieldError::not_supported("fieldValidation", &asked.into(), &KNOWN)))
}

/// Gets one object.
pub(crate) fn get(ctx: &Context<'_>) -> ApiResult<Answer> {
    let store = ctx.store();
    if let Some(asked) = list::resource_version(ctx.query)?
        && asked > store.revision()
    {
        return Err(ApiError::version_too_large(asked, store.revision()));
    }
    Ok(Answer::Stored(200, ctx.current(&store)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_field_validation_is_refused() {
        for known in ["", "Ignore", "Strict", "Warn"] {
            assert_eq!(field_validation(known, "CreateOptions"), Ok(()));
        }
        let refused = field_validation("strict", "PatchOptions").unwrap_err();
        let why = "PatchOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"strict\": \
            supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"";
        assert_eq!((refused.code, refused.message.as_str()), (422, why));
    }
}
