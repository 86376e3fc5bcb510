//! PATCH: JSON patch, merge patch, strategic merge patch and server-side apply, then an update.

use sampan_json::SetField;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::context::Context;
use super::draft::{Drafted, Sent};
use super::{apply, update};
use crate::codec::parse;
use crate::patch::json::{self, JsonPatchError};
use crate::patch::strategic::PatchError;
use crate::resource::Resource;
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::Stored;
use apimachinery::field::FieldError;
use apimachinery::meta;
use apimachinery::pace::is_large;

pub(crate) const JSON: &str = "application/json-patch+json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// PATCH with the body's content type.
pub(crate) fn draft(ctx: &mut Context<'_>, sent: &Sent, current: Option<&Arc<Stored>>) -> ApiResult<Drafted> {
    let resource = Arc::clone(&ctx.resource);
    let Sent { body, media } = sent;
    let accepted = if resource.is_custom() {
        format!("{JSON}, {MERGE}, {APPLY}")
    } else {
        format!("{JSON}, {MERGE}, {STRATEGIC}, {APPLY}")
    };
    let dry_run = ctx.dry_run()?;
    match media.as_str() {
        JSON | MERGE => {}
        STRATEGIC if !resource.is_custom() => {}
        APPLY => return Ok(Drafted { draft: apply::draft(ctx, body, current)?, dry_run }),
        _ => return Err(ApiError::unsupported_media_type(&accepted)),
    }
    if !ctx.query.text("force").is_empty() {
        let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
        return Err(ApiError::options("PatchOptions", &error));
    }
    let (patch, duplicates) = parse::parse_within(body, resource.body_memory())
        .map_err(|e| ApiError::bad_request(format!("error decoding patch: {}", parse::reason(&e))))?;
    let current = current.ok_or_else(|| ApiError::not_found(&resource, &ctx.path.name))?;
    let bytes = current.body.len() + body.len();
    let mut shown = Part::of(&resource, &ctx.path.subresource, media, &patch, bytes).copy(current);
    if let Some(read) = resource.strategy().read(&shown) {
        shown = read;
    }
    resource.to_served(&mut shown);
    shown.set("kind", resource.kind.as_ref().into());
    shown.set("apiVersion", resource.api_version().into());
    let patched = apply_to(shown, patch, media, |shown, patch| resource.strategy().strategic_merge(shown, patch))?;
    let mut patched = typed(ctx, patched, duplicates, body)?;
    if meta::text(&patched, "name") != ctx.path.name && resource.rules().patch_keeps_name {
        let mut error = ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            meta::text(&patched, "name"),
            ctx.path.name
        ));
        error.code = 400;
        return Err(error);
    }
    ctx.match_namespace(&mut patched)?;
    // A uid in a patch, unlike in a PUT, is not a precondition but a change, which validation refuses.
    Ok(Drafted { draft: update::change(ctx, current, patched, None, None)?, dry_run })
}

/// The part of the stored object that a patch is applied to. The rest would be copied, and its types checked, for nothing.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Whole,
    /// All but `managedFields`, which can be most of an object. Writes of a subresource ignore them, but JSON patches may
    /// test them.
    Unmanaged,
    /// Metadata and status of a pod, which its node writes often: a write of the status takes the rest from the stored pod.
    Status,
}

/// Fields of [`Part::Status`], and of a patch of it.
const STATUS: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

impl Part {
    /// `bytes`: size of the object and the patch. The limit of an object's size is for all of it, so a large one is measured
    /// as a whole.
    fn of(resource: &Resource, subresource: &str, media: &str, patch: &Value, bytes: usize) -> Self {
        let within = |fields: &Map<String, Value>| fields.keys().all(|name| STATUS.contains(&name.as_str()));
        match subresource {
            _ if media != STRATEGIC || subresource.is_empty() => Self::Whole,
            "status" if resource.rules().admit_pods && !is_large(bytes) && patch.as_object().is_some_and(within) => {
                Self::Status
            }
            _ => Self::Unmanaged,
        }
    }

    fn copy(&self, current: &Stored) -> Value {
        match self {
            Self::Whole => current.copy(),
            Self::Unmanaged => meta::without_owners(current.value()),
            Self::Status => meta::part_without_owners(current.value(), |name| STATUS.contains(&name)),
        }
    }
}

fn typed(ctx: &mut Context<'_>, patched: Value, duplicates: Vec<String>, body: &Bytes) -> ApiResult<Value> {
    for (field, expected) in [("kind", ctx.resource.kind.to_string()), ("apiVersion", ctx.resource.api_version())] {
        if patched[field] != expected.as_str() {
            let why = format!("must be {expected}");
            let error = FieldError::invalid(field, &patched[field], &why);
            let text = format!(" \"\" is invalid: patch: {}", error.message);
            return Err(ApiError::unprocessable(text).with_cause(error.kind.reason(), &error.message, "patch"));
        }
    }
    ctx.typed(patched, duplicates, Some(body)).map_err(|text| {
        let patch = parse::parse(body).map(|(patch, _)| patch.to_string()).unwrap_or_default();
        let error = FieldError::invalid("patch", &patch.into(), &text);
        ApiError::unprocessable(format!(" \"\" is invalid: patch: {}", error.message)).with_cause(
            error.kind.reason(),
            &error.message,
            "patch",
        )
    })
}

/// A value with a patch of this type in it; how lists merge in a strategic merge patch is the caller's.
pub(crate) fn apply_to(
    mut value: Value,
    patch: Value,
    content_type: &str,
    strategic: impl FnOnce(Value, Value) -> Result<Value, PatchError>,
) -> ApiResult<Value> {
    match content_type {
        JSON => json::json_patch(&mut value, patch).map_err(|e| match e {
            JsonPatchError::Malformed(text) => ApiError::bad_request(text),
            // The API server reports no more than this.
            JsonPatchError::Inapplicable(text) => {
                log::debug!("a JSON patch does not apply: {text}");
                ApiError::rejected()
            }
        })?,
        MERGE => {
            object_patch(&patch)?;
            json::merge_patch(&mut value, patch);
        }
        _ => {
            object_patch(&patch)?;
            value = strategic(value, patch).map_err(|e| match e {
                PatchError::Unsupported => ApiError::unsupported_media_type(&format!("{JSON}, {MERGE}, {APPLY}")),
                PatchError::Invalid(text) => ApiError::unprocessable(text),
            })?;
        }
    }
    Ok(value)
}

fn object_patch(patch: &Value) -> ApiResult<()> {
    if patch.is_object() {
        return Ok(());
    }
    Err(ApiError::bad_request(
        "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
    ))
}

#[cfg(test)]
mod tests {
    use apimachinery::pace::LARGE;
    use serde_json::json;

    use super::*;

    #[test]
    fn patch_of_a_status_copies_no_more_than_it_may_change() {
        let object = json!({"metadata": {"name": "p", "managedFields": [{"manager": "m"}]}, "spec": {"a": 1},
            "status": {"b": 1}});
        let stored = Stored::unwritten(object.clone());
        let copied = |kind: &str, subresource: &str, media: &str, patch: &Value, bytes: usize| {
            let resource = crate::kinds::resources().into_iter().find(|one| one.kind == kind).unwrap();
            Part::of(&resource, subresource, media, patch, bytes).copy(&stored)
        };
        let patch = json!({"metadata": {"uid": "u"}, "status": {"b": 2}});
        let (status, unmanaged) = (
            json!({"metadata": {"name": "p"}, "status": {"b": 1}}),
            json!({"metadata": {"name": "p"}, "spec": {"a": 1}, "status": {"b": 1}}),
        );
        assert_eq!(copied("Pod", "status", STRATEGIC, &patch, LARGE - 1), status);
        assert_eq!(copied("Pod", "status", STRATEGIC, &patch, LARGE), unmanaged, "it is measured as a whole");
        assert_eq!(copied("Node", "status", STRATEGIC, &patch, 1), unmanaged);
        assert_eq!(copied("Pod", "resize", STRATEGIC, &patch, 1), unmanaged);
        for other in [json!({"spec": null}), json!({"$patch": "replace", "status": {}}), json!([])] {
            assert_eq!(copied("Pod", "status", STRATEGIC, &other, 1), unmanaged, "{other}");
        }
        for (subresource, media) in [("", STRATEGIC), ("status", JSON), ("status", MERGE)] {
            assert_eq!(copied("Pod", subresource, media, &patch, 1), object, "{media}");
        }
    }
}
