//! PATCH: JSON patch, merge patch, strategic merge patch and server-side apply, then an update.

use edge_protocol::json::SetField;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::context::Context;
use super::draft::{Drafted, Sent};
use super::{apply, update};
use crate::codec::parse;
use crate::patch::json::{self, JsonPatchError};
use crate::patch::strategic::PatchError;
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::Stored;
use apimachinery::field::FieldError;
use apimachinery::meta;

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
    let mut shown = patchable(current, &ctx.path.subresource, media);
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

/// Copies the object to be patched. Writes of a subresource ignore `managedFields`, which can be most of an object: then they
/// are not copied. JSON patches may test them, and those of tenants' kinds count.
fn patchable(current: &Stored, subresource: &str, media: &str) -> Value {
    if media == STRATEGIC && !subresource.is_empty() {
        return meta::without_owners(current.value());
    }
    current.copy()
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
    use serde_json::json;

    use super::*;

    #[test]
    fn managers_are_not_copied_for_a_status() {
        let object = json!({"metadata": {"name": "p", "managedFields": [{"manager": "m"}]}, "status": {"a": 1}});
        let stored = Stored::unwritten(object.clone());
        let bare = json!({"metadata": {"name": "p"}, "status": {"a": 1}});
        assert_eq!(patchable(&stored, "status", STRATEGIC), bare);
        for (subresource, media) in [("", STRATEGIC), ("status", JSON), ("status", MERGE)] {
            assert_eq!(patchable(&stored, subresource, media), object, "{media}");
        }
    }
}
