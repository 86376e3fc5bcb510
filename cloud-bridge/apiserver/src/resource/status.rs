//! Failures as the API reports them: a code, a reason and a message that make a `v1.Status`. The texts are those that
//! clients and users know from Kubernetes. Knows nothing of HTTP beyond the status code.

use sampan_json::SetField;
use serde_json::{Value, json};

use super::Resource;
use apimachinery::field::FieldError;
use apimachinery::status::failure;

/// A failed request; converted to a `v1.Status` body.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    /// The `details` of the Status, or null.
    pub details: Value,
    /// A continue token for the client to go on with, in the Status' own metadata.
    pub list_continue: Option<String>,
}

/// The result of a verb.
pub(crate) type ApiResult<T> = Result<T, ApiError>;

/// The most errors that one answer lists.
pub(crate) const ERRORS_MAX: usize = 256;

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null, list_continue: None }
    }

    fn about(mut self, resource: &Resource, name: &str) -> Self {
        self.details = json!({ "kind": resource.plural });
        if !name.is_empty() {
            self.details.set("name", name.into());
        }
        if !resource.group.is_empty() {
            self.details.set("group", resource.group.as_ref().into());
        }
        self
    }

    /// 400: the request itself is wrong.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403 about one object: `pods "x" is forbidden: WHY`.
    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let subject = if name.is_empty() {
            format!("{} is forbidden: {why}", resource.qualified())
        } else {
            format!("{} {name:?} is forbidden: {why}", resource.qualified())
        };
        Self::new(403, "Forbidden", subject).about(resource, name)
    }

    /// 403 about a path or subject without a resource.
    pub fn forbidden_text(message: impl Into<String>) -> Self {
        let mut error = Self::new(403, "Forbidden", message);
        error.details = json!({});
        error
    }

    /// 404 of one object.
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", resource.qualified())).about(resource, name)
    }

    /// 404 of a path that nothing serves.
    pub fn no_resource() -> Self {
        let mut error = Self::new(404, "NotFound", "the server could not find the requested resource");
        error.details = json!({});
        error
    }

    /// 404 of a namespace.
    pub fn no_namespace(name: &str) -> Self {
        let mut error = Self::new(404, "NotFound", format!("namespaces {name:?} not found"));
        error.details = json!({ "name": name, "kind": "namespaces" });
        error
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        let mut error =
            Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
        error.details = json!({});
        error
    }

    /// 406.
    pub fn not_acceptable() -> Self {
        let mut error = Self::new(
            406,
            "NotAcceptable",
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf, application/json;stream=watch, \
             application/vnd.kubernetes.protobuf;stream=watch",
        );
        error.details = json!({});
        error
    }

    /// 415 with the accepted types.
    pub fn unsupported_media_type(accepted: &str) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}"),
        )
    }

    /// 409: the name is in use.
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", resource.qualified()))
            .about(resource, name)
    }

    /// 409: `Operation cannot be fulfilled on pods "x": WHY`.
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.qualified()))
            .about(resource, name)
    }

    /// 409 with the text of optimistic concurrency.
    pub fn modified(resource: &Resource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 410: the resourceVersion or continue token is older than the history kept.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413.
    pub fn too_large(limit: usize) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("limit is {limit}"))
    }

    /// 422: the object breaks its kind's rules.
    pub fn invalid(resource: &Resource, name: &str, errors: &[FieldError]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        let mut causes = Vec::new();
        for error in errors.iter().take(ERRORS_MAX) {
            let text = format!("{}: {}", error.field, error.message);
            if !texts.contains(&text) {
                texts.push(text);
            }
            causes.push(json!({ "reason": error.kind.reason(), "message": error.message, "field": error.field }));
        }
        if let Some(more) = errors.len().checked_sub(ERRORS_MAX).filter(|n| *n > 0) {
            texts.push(format!("{more} more errors"));
        }
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let kind = if resource.group.is_empty() {
            resource.kind.to_string()
        } else {
            format!("{}.{}", resource.kind, resource.group)
        };
        let mut result = Self::new(422, "Invalid", format!("{kind} {name:?} is invalid: {list}"));
        result.details = json!({ "kind": resource.kind, "causes": causes });
        if !name.is_empty() {
            result.details.set("name", name.into());
        }
        if !resource.group.is_empty() {
            result.details.set("group", resource.group.as_ref().into());
        }
        result
    }

    /// 422 of the options of a request: `ListOptions.meta.k8s.io "" is invalid: …`.
    pub(crate) fn options(kind: &str, error: &FieldError) -> Self {
        let mut result = Self::new(
            422,
            "Invalid",
            format!("{kind}.meta.k8s.io \"\" is invalid: {}: {}", error.field, error.message),
        );
        result.details = json!({
            "group": "meta.k8s.io",
            "kind": kind,
            "causes": [{ "reason": error.kind.reason(), "message": error.message, "field": error.field }],
        });
        result
    }

    /// 422 of a patch that does not apply to the current object.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }

    /// 422 without a word why.
    pub(crate) fn rejected() -> Self {
        let mut error = Self::new(422, "Invalid", "the server rejected our request due to an error in our request");
        error.details = json!({});
        error
    }

    /// 429: an eviction that must wait.
    pub fn too_many_requests(message: impl Into<String>) -> Self {
        Self::new(429, "TooManyRequests", message)
    }

    /// 429: too many requests are under way; the client asks again in a second.
    pub(crate) fn busy() -> Self {
        let mut error = Self::too_many_requests("Too many requests, please try again later.");
        error.details = json!({ "retryAfterSeconds": 1 });
        error
    }

    /// 500 with a text that is the server's own fault.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        let mut error = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        error.details = json!({ "causes": [{ "message": message.to_string() }] });
        error
    }

    /// 500 without a reason, as the API server answers plain errors of its storage layer.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// 503.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// 504: a resourceVersion that the server has not reached.
    pub fn version_too_large(asked: u64, current: u64) -> Self {
        let mut error =
            Self::new(504, "Timeout", format!("Timeout: Too large resource version: {asked}, current: {current}"));
        error.details = json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        });
        error
    }

    /// Adds a cause to the details.
    pub fn with_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let mut cause = json!({ "reason": reason, "message": message });
        if !field.is_empty() {
            cause.set("field", field.into());
        }
        match self.details.get_mut("causes").and_then(Value::as_array_mut) {
            Some(causes) => causes.push(cause),
            None => self.details.set("causes", json!([cause])),
        }
        self
    }

    /// The `v1.Status` object.
    pub fn status(&self) -> Value {
        let mut status = failure(self.code, self.reason, &self.message);
        if let Some(token) = &self.list_continue {
            status.set_at(&["metadata", "continue"], token.as_str().into());
        }
        if !self.details.is_null() {
            status.set("details", self.details.clone());
        }
        status
    }
}
