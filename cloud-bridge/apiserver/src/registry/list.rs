//! Lists: resourceVersion semantics, and pages that stay one consistent snapshot.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::answer::{Answer, Large, Listed};
use super::context::Context;
use super::selection::Selection;
use crate::auth::request_info::Query;
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::{Most, Page, Store};
use apimachinery::field::FieldError;
use apimachinery::key::ObjectKey;

/// The largest list without a limit that is made at once.
const AT_HAND: Most = Most { items: usize::MAX, bytes: 64 << 10 };
/// Maximum bytes that are read for a page with a limit in one step, because rows and other forms need parsed objects. A
/// server may return fewer than requested (K8s ListOptions, `limit`).
const PAGE_BYTES: usize = 512 << 10;
/// How many objects after a page are counted.
const COUNTED: u64 = 10_000;

/// The `resourceVersion` of a query; `None` for absent and `0`.
pub(crate) fn resource_version(query: &Query) -> ApiResult<Option<u64>> {
    match query.text("resourceVersion") {
        "" | "0" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        }),
    }
}

/// GET of a collection.
pub(crate) fn list(ctx: &Context<'_>) -> ApiResult<Answer> {
    validate(ctx.query)?;
    let selection = Selection::new(ctx)?;
    let limit = ctx
        .query
        .number("limit")
        .map_err(|text| ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))?;
    let limit = limit.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
    let store = ctx.store();
    let asked = resource_version(ctx.query)?;
    if let Some(asked) = asked
        && asked > store.revision()
    {
        return Err(ApiError::version_too_large(asked, store.revision()));
    }
    let matching = ctx.query.text("resourceVersionMatch");
    let token = ctx.query.text("continue");
    let (rev, after) = if token.is_empty() {
        // With a limit and no match given, a resourceVersion means exactly that one.
        let exact = matching == "Exact" || (matching.is_empty() && limit.is_some());
        (asked.filter(|_| exact).unwrap_or_else(|| store.revision()), None)
    } else {
        if asked.is_some() {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        let (rev, after) = parse_token(token)?;
        (rev.unwrap_or_else(|| store.revision()), Some(after))
    };
    if store.knows(&ctx.resource.storage, rev).is_err() {
        return Err(expired(after.as_ref()));
    }
    page(&store, ctx, selection, rev, after.as_ref(), limit)
}

fn page(
    store: &Store,
    ctx: &Context<'_>,
    selection: Selection,
    rev: u64,
    after: Option<&ObjectKey>,
    limit: Option<usize>,
) -> ApiResult<Answer> {
    let storage = ctx.resource.storage.as_ref();
    let namespace = selection.namespace.as_deref();
    let most = limit.map_or(AT_HAND, |limit| Most { items: limit, bytes: PAGE_BYTES });
    let Page { items, next: more } = selection.page(store, rev, after, most)?;
    let mut listed = Listed { items, rev, next: None, remaining: None };
    if let Some(last) = more {
        if limit.is_none() {
            return Ok(Answer::Large(Large { selection, rev, after: after.cloned() }));
        }
        listed.next = Some(make_token(Some(rev), &last));
        if selection.all() {
            // As of now, not of `rev`: an estimate, which the API allows to be left out (K8s ListMeta, `remainingItemCount`).
            listed.remaining = store.count(storage, namespace, &last, COUNTED)?;
        }
    }
    Ok(Answer::List(listed))
}

fn validate(query: &Query) -> ApiResult<()> {
    let invalid = |field: &str, text: &str| Err(ApiError::options("ListOptions", &FieldError::forbidden(field, text)));
    let matching = query.text("resourceVersionMatch");
    if !matching.is_empty() {
        if query.text("resourceVersion").is_empty() {
            return invalid(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            );
        }
        if !query.text("continue").is_empty() {
            return invalid("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided");
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            let error =
                FieldError::not_supported("resourceVersionMatch", &matching.into(), &["Exact", "NotOlderThan", ""]);
            return Err(ApiError::options("ListOptions", &error));
        }
        if matching == "Exact" && query.text("resourceVersion") == "0" {
            return invalid(
                "resourceVersionMatch",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            );
        }
    }
    if query.get("sendInitialEvents").is_some() {
        return invalid("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    Ok(())
}

/// A continue token: the snapshot's revision (`None`: whatever is newest) and the last key given.
fn make_token(rev: Option<u64>, last: &ObjectKey) -> String {
    let rev = rev.map_or(-1, u64::cast_signed);
    BASE64_URL_SAFE_NO_PAD
        .encode(json!({ "v": "meta.k8s.io/v1", "rv": rev, "ns": last.namespace, "start": last.name }).to_string())
}

fn parse_token(token: &str) -> ApiResult<(Option<u64>, ObjectKey)> {
    let invalid = || ApiError::bad_request("invalid continue token: continue key is not valid");
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
    let rev = value["rv"].as_i64().ok_or_else(invalid)?;
    let text = |key: &str| value[key].as_str().map(str::to_owned).ok_or_else(invalid);
    Ok((u64::try_from(rev).ok(), ObjectKey { namespace: text("ns")?, name: text("start")? }))
}

fn expired(after: Option<&ObjectKey>) -> ApiError {
    match after {
        None => ApiError::expired("The resourceVersion for the provided list is too old."),
        Some(after) => {
            let mut error = ApiError::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
            );
            error.list_continue = Some(make_token(None, after));
            error
        }
    }
}
