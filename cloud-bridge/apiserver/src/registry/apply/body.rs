//! What a client applies: YAML of an object of the path's kind, each field of which the kind has
//! (apimachinery pkg/util/managedfields/internal: versioncheck.go, structuredmerge.go).

use bytes::Bytes;
use serde_json::Value;

use crate::codec::decode::Decoded;
use crate::codec::yaml::Document;
use crate::patch::fields::{self, Keys};
use crate::registry::Context;
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::{json, meta};

/// The applied object in stored form, and what strict reading says of its text.
///
/// # Errors
/// 400 for a body that is no such object, 500 for fields that the kind does not have: as the API server answers them,
/// whatever field validation is asked for.
pub(super) fn read(ctx: &Context<'_>, body: &Bytes) -> ApiResult<(Value, Result<(), String>)> {
    let refuse = |why: &str| ApiError::bad_request(format!("error decoding YAML: {why}"));
    let document = Document::read(body).map_err(|why| refuse(&why))?;
    let strict = document.strict();
    let kind = match &document.value {
        Value::Object(_) | Value::Null => kind_of(json::text(&document.value, "apiVersion"), &document.value),
        _ => return Err(refuse("error unmarshaling JSON: while decoding JSON: json: the body is no object")),
    };
    let expected = format!("{}/{}, Kind={}", ctx.resource.group, ctx.resource.version, ctx.resource.kind);
    if kind != expected {
        return Err(ApiError::bad_request(format!("invalid object type: {kind}")));
    }
    if !document.value["metadata"]["managedFields"].is_null() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let Decoded { value, unknown } =
        ctx.checked(document.value.clone()).map_err(|why| untyped(&document, &kind, &why))?;
    if unknown.is_empty() {
        return Ok((value, strict));
    }
    let keys = |names: &[&str]| ctx.resource.strategy().list_keys(names);
    let told = |path: &String| format!("{}: field not declared in schema", shown(&document.value, path, &keys));
    let told: Vec<String> = unknown.iter().map(told).collect();
    let why = match told.as_slice() {
        [one] => one.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    };
    Err(untyped(&document, &kind, &why))
}

/// `group/version, Kind=kind`, as Go shows it.
fn kind_of(api_version: &str, object: &Value) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={}", json::text(object, "kind"))
}

fn untyped(document: &Document, kind: &str, why: &str) -> ApiError {
    let (namespace, name) = (meta::text(&document.value, "namespace"), meta::text(&document.value, "name"));
    ApiError::unknown(format!("failed to create typed patch object ({namespace}/{name}; {kind}): {why}"))
}

/// A path as server-side apply names it: elements of lists that merge are named by their keys.
fn shown(object: &Value, path: &str, keys: Keys<'_>) -> String {
    let (mut out, mut names, mut rest, mut at) = (String::new(), Vec::new(), path, Some(object));
    while !rest.is_empty() {
        if let Some((index, after)) = rest.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            let item = index.parse::<usize>().ok().and_then(|index| at?.get(index));
            match (item, keys(&names).filter(|list| !list.is_empty())) {
                (Some(item), Some(list)) => out += &fields::shown(&[fields::element(item, &list)]),
                _ => out += &format!("[{index}]"),
            }
            (at, rest) = (item, after.strip_prefix('.').unwrap_or(after));
            continue;
        }
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        out += &format!(".{name}");
        names.push(name);
        (at, rest) = (at.and_then(|value| value.get(name)), after.strip_prefix('.').unwrap_or(after));
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn elements_of_lists_are_named_by_their_keys() {
        let object =
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "env": [{"name": "e"}]}], "list": [{}]}});
        let keys = |names: &[&str]| match names {
            ["spec", "containers"] | ["spec", "containers", "env"] => Some(vec!["name".to_owned()]),
            _ => None,
        };
        for (path, told) in [
            ("bogus", ".bogus"),
            ("spec.bogus", ".spec.bogus"),
            ("spec.containers[1].env[0].bogus", ".spec.containers[name=\"b\"].env[name=\"e\"].bogus"),
            ("spec.list[0].bogus", ".spec.list[0].bogus"),
            ("spec.list[7].bogus", ".spec.list[7].bogus"),
        ] {
            assert_eq!(shown(&object, path, &keys), told);
        }
    }

    #[test]
    fn kinds_are_shown_as_go_does() {
        let object = json!({"kind": "Pod"});
        assert_eq!(kind_of("v1", &object), "/v1, Kind=Pod");
        assert_eq!(kind_of("x.io/v1", &object), "x.io/v1, Kind=Pod");
        assert_eq!(kind_of("", &json!(null)), "/, Kind=");
    }
}
