//! The applied object of a client: YAML of the path's kind, with only known fields (apimachinery
//! pkg/util/managedfields/internal: versioncheck.go, structuredmerge.go).

use std::collections::HashSet;

use bytes::Bytes;
use serde_json::Value;

use super::last_applied;
use crate::codec::decode::Decoded;
use crate::codec::parse::{COMPLAINTS_MAX, TOO_MANY};
use crate::codec::yaml::Document;
use crate::patch::budget::Budget;
use crate::patch::field_set::{self, FieldSet};
use crate::patch::shape::Shape;
use crate::registry::context::Context;
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::{json, meta};

/// Maximum memory of an applied object of a kind that tenants write, approximately: lists of some 1,700 objects. About
/// five copies exist until it is stored, and each of its fields is in the sets of its owners.
const TENANT_MEMORY_MAX: usize = 1536 * 1024;

/// The applied object of a client.
pub(super) struct Body {
    /// The object in stored form.
    pub(super) object: Value,
    /// Text of the annotation of client-side apply, if the client keeps one.
    pub(super) config: Option<String>,
    /// Errors of strict parsing.
    pub(super) strict: Result<(), String>,
}

/// Reads the body of the request.
///
/// # Errors
/// The codes are those of the API server, whatever field validation the client asks for: 400 for a body that is not
/// such an object, 413 for one that is too large to apply, 500 for fields that the kind does not have.
pub(super) fn read(ctx: &Context<'_>, body: &Bytes) -> ApiResult<Body> {
    let refuse = |why: &str| match why {
        TOO_MANY => too_large("values"),
        _ => ApiError::bad_request(format!("error decoding YAML: {why}")),
    };
    // The live object, the merged one and the stored one exist at the same time.
    let memory = if ctx.resource.is_of_tenants() { TENANT_MEMORY_MAX } else { ctx.resource.body_memory() / 2 };
    let document = Document::read_within(body, memory).map_err(|why| refuse(&why))?;
    let strict = document.strict();
    let mut written = document.value;
    let kind = match &written {
        Value::Object(_) | Value::Null => kind_of(json::text(&written, "apiVersion"), &written),
        _ => return Err(refuse("error unmarshaling JSON: while decoding JSON: json: the body is no object")),
    };
    let expected = format!("{}/{}, Kind={}", ctx.resource.group, ctx.resource.version, ctx.resource.kind);
    if kind != expected {
        return Err(ApiError::bad_request(format!("invalid object type: {kind}")));
    }
    if !written["metadata"]["managedFields"].is_null() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let shape = ctx.resource.strategy().shape();
    let repeated = repeated(&written, shape, [ctx.field_budget(), ctx.field_budget()])?;
    let subject = format!("{}/{}; {kind}", meta::text(&written, "namespace"), meta::text(&written, "name"));
    let config = (ctx.writer.manager() == last_applied::MANAGER).then(|| last_applied::config(&mut written));
    let Decoded { value: object, unknown } = ctx.checked(written).map_err(|why| untyped(&subject, &why))?;
    if unknown.is_empty() && repeated.is_empty() {
        return Ok(Body { object, config, strict });
    }
    // It was consumed by the check, because two copies would be too much.
    let written = Document::read_within(body, memory).map_err(|why| refuse(&why))?.value;
    let told = |path: &String| format!("{}: field not declared in schema", shown(&written, path, shape));
    let mut told: Vec<String> = unknown.iter().map(told).collect();
    told.extend(repeated);
    told.truncate(COMPLAINTS_MAX);
    let why = match told.as_slice() {
        [one] => one.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    };
    Err(untyped(&subject, &why))
}

/// Duplicates in an applied object. The budgets are the same: one for what was sent, and one for its set.
///
/// # Errors
/// 413 for too many fields.
fn repeated(written: &Value, shape: Shape<'_>, [mut sent, mut kept]: [Budget; 2]) -> ApiResult<Vec<String>> {
    let set = FieldSet::of(written, shape, &mut sent).map_err(|_| too_large("fields"))?;
    set.charge(&mut kept).map_err(|_| too_large("fields"))?;
    let mut told = Vec::new();
    // A set keeps the first of duplicates: names are only needed if it is smaller than what was sent.
    if sent != kept {
        twice(written, shape, "", &mut told);
    }
    Ok(told)
}

/// Duplicates in lists with identified items (structured-merge-diff typed/validate.go).
fn twice(value: &Value, shape: Shape<'_>, path: &str, told: &mut Vec<String>) {
    if told.len() >= COMPLAINTS_MAX {
        return;
    }
    match value {
        Value::Object(fields) if !shape.is_atomic() => {
            for (name, inner) in fields {
                twice(inner, shape.field(name), &format!("{path}.{name}"), told);
            }
        }
        Value::Array(items) => {
            let Some(keys) = shape.list_keys() else { return };
            let mut seen = HashSet::new();
            for item in items {
                let step = shape.element(item, &keys);
                let named = field_set::shown(&step);
                twice(item, shape.item(), &format!("{path}{named}"), told);
                if !seen.insert(step) {
                    told.push(format!("{path}: duplicate entries for key {named}"));
                }
            }
        }
        _ => {}
    }
}

/// 413 for an object that has too much of something.
pub(super) fn too_large(what: &str) -> ApiError {
    let mut error = ApiError::too_large(0);
    error.message = format!(
        "the object has too many {what} for server-side apply: write it with create or update instead, or make several of it"
    );
    error
}

/// `group/version, Kind=kind`, as Go shows it.
fn kind_of(api_version: &str, object: &Value) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={}", json::text(object, "kind"))
}

/// `subject` is `namespace/name; group/version, Kind=kind`.
fn untyped(subject: &str, why: &str) -> ApiError {
    ApiError::unknown(format!("failed to create typed patch object ({subject}): {why}"))
}

/// A path as server-side apply names it: elements of lists that merge are named by their keys.
fn shown(object: &Value, path: &str, shape: Shape<'_>) -> String {
    let (mut out, mut rest, mut at, mut shape) = (String::new(), path, Some(object), shape);
    while !rest.is_empty() {
        if let Some((index, after)) = rest.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            let item = index.parse::<usize>().ok().and_then(|index| at?.get(index));
            match (item, shape.list_keys().filter(|keys| !keys.is_empty())) {
                (Some(item), Some(keys)) => out += &field_set::shown(&shape.element(item, &keys)),
                _ => out += &format!("[{index}]"),
            }
            (at, rest, shape) = (item, after.strip_prefix('.').unwrap_or(after), shape.item());
            continue;
        }
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        out += &format!(".{name}");
        (at, rest) = (at.and_then(|value| value.get(name)), after.strip_prefix('.').unwrap_or(after));
        shape = shape.field(name);
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::patch::merge_keys::{Type, by, by_of, object, set};

    #[test]
    fn elements_of_lists_are_named_by_their_keys() {
        let given =
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "env": [{"name": "e"}]}], "list": [{}]}});
        static CONTAINER: Type = Type { fields: &[by("env", &["name"])] };
        static SPEC: Type = Type { fields: &[by_of("containers", &["name"], &CONTAINER)] };
        static KIND: Type = Type { fields: &[object("spec", &SPEC)] };
        for (path, told) in [
            ("bogus", ".bogus"),
            ("spec.bogus", ".spec.bogus"),
            ("spec.containers[1].env[0].bogus", ".spec.containers[name=\"b\"].env[name=\"e\"].bogus"),
            ("spec.list[0].bogus", ".spec.list[0].bogus"),
            ("spec.list[7].bogus", ".spec.list[7].bogus"),
        ] {
            assert_eq!(shown(&given, path, Shape::built(&KIND)), told);
        }
    }

    #[test]
    fn what_stands_twice_is_named_by_its_key() {
        static CONTAINER: Type = Type { fields: &[by("env", &["name"]), set("words")] };
        static SPEC: Type = Type { fields: &[by_of("containers", &["name"], &CONTAINER)] };
        static KIND: Type = Type { fields: &[object("spec", &SPEC)] };
        let told = |spec: Value| {
            let mut told = Vec::new();
            twice(&json!({ "spec": spec }), Shape::built(&KIND), "", &mut told);
            told
        };
        let env = json!([{"name": "a", "value": "1"}, {"name": "b"}, {"name": "a", "value": "2"}]);
        let container = json!({"name": "c", "env": env, "words": ["x", "y", "x"], "args": ["z", "z"]});
        let expected = [
            ".spec.containers[name=\"c\"].env: duplicate entries for key [name=\"a\"]",
            ".spec.containers[name=\"c\"].words: duplicate entries for key [=\"x\"]",
        ];
        assert_eq!(told(json!({"containers": [container]})), expected);
        assert_eq!(told(json!({"containers": [{"name": "c"}, {"name": "d"}], "other": [1, 1]})), [""; 0]);
    }

    #[test]
    fn kinds_are_shown_as_go_does() {
        let object = json!({"kind": "Pod"});
        assert_eq!(kind_of("v1", &object), "/v1, Kind=Pod");
        assert_eq!(kind_of("x.io/v1", &object), "x.io/v1, Kind=Pod");
        assert_eq!(kind_of("", &json!(null)), "/, Kind=");
    }
}
