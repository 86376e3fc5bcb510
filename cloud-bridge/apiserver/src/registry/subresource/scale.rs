//! The scale subresource: an `autoscaling/v1` Scale over the paths that the kind names.

use std::sync::Arc;

use bytes::Bytes;
use edge_protocol::json::SetField;
use k8s_openapi::api::autoscaling::v1::Scale;
use serde_json::{Value, json};

use crate::codec::jsonpath;
use crate::codec::parse;
use crate::patch::{merge_keys, strategic};
use crate::registry::patch::{JSON, MERGE, STRATEGIC, apply_to};
use crate::registry::{Answer, Context, update};
use crate::resource::status::{ApiError, ApiResult};
use crate::resource::strategy::ScalePaths;
use crate::resource::typed;
use apimachinery::field::FieldError;
use apimachinery::meta;
use apimachinery::selector::format_label_selector;

/// GET, PUT and PATCH, but no server-side apply.
pub(crate) fn scale(ctx: &mut Context<'_>, verb: &str, media: &str, body: &Bytes) -> ApiResult<Answer> {
    let inner = ctx.inner;
    let mut store = inner.store();
    let current = ctx.current(&store)?;
    let resource = Arc::clone(&ctx.resource);
    let paths = resource.strategy().scale().ok_or_else(ApiError::no_resource)?;
    let live = resource.read(current.value());
    let shown = show(&live, paths);
    let wanted = match verb {
        // Of a custom resource it may not be there (K8s registry/customresource/etcd.go, `ScaleREST`); a write makes it.
        "get" if jsonpath::find(&live, &paths.spec_replicas).is_empty() => {
            return Err(ApiError::internal(format!(
                "the spec replicas field {:?} does not exist",
                paths.spec_replicas
            )));
        }
        "get" => return Ok(Answer::Plain(200, shown)),
        "update" => typed::read::<Scale>(body, "Scale")?,
        "patch" => patched(shown, media, body, resource.is_custom())?,
        _ => return Err(ApiError::method_not_allowed()),
    };
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let error = FieldError::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
        return Err(ApiError::invalid(&ctx.resource, &ctx.path.name, &[error]));
    }
    let mut new = live.into_owned();
    let place = jsonpath::fields(&paths.spec_replicas).ok_or_else(ApiError::no_resource)?;
    let place: Vec<&str> = place.iter().map(String::as_str).collect();
    new.set_at(&place, replicas.into());
    if new.at_mut(&place).is_none_or(|set| *set != replicas) {
        let why = format!("the object has something other than fields on the way to {}", place.join("."));
        return Err(ApiError::unprocessable(why));
    }
    let version = meta::text(&wanted, "resourceVersion").to_owned();
    if !version.is_empty() {
        meta::set(&mut new, "resourceVersion", version.into());
    }
    let dry_run = ctx.dry_run()?;
    let mut path = ctx.path.clone();
    path.subresource.clear();
    let mut main = Context {
        inner,
        user: ctx.user,
        resource: ctx.resource.clone(),
        path: &path,
        query: ctx.query,
        verb: ctx.verb.clone(),
        now: ctx.now,
        warnings: Vec::new(),
        writer: ctx.writer.clone(),
        managed: None,
        strict: None,
        cel: std::mem::take(&mut ctx.cel),
    };
    let stored = update::replace(&mut main, &mut store, &current, new, None, dry_run);
    ctx.cel = main.cel;
    let stored = stored?;
    Ok(Answer::Plain(200, show(&stored, paths)))
}

/// The Scale that a patch makes. As for the object itself, custom kinds know no strategic merge.
fn patched(shown: Value, media: &str, body: &Bytes, custom: bool) -> ApiResult<Value> {
    let accepted = if custom { &[JSON, MERGE][..] } else { &[JSON, MERGE, STRATEGIC] };
    if !accepted.contains(&media) {
        return Err(ApiError::unsupported_media_type(&accepted.join(", ")));
    }
    let (change, _) = parse::parse(body)
        .map_err(|e| ApiError::bad_request(format!("error decoding patch: {}", parse::reason(&e))))?;
    let wanted = apply_to(shown, &change, media, |shown, change| strategic::apply(&merge_keys::OBJECT, shown, change))?;
    typed::value::<Scale>(wanted, "Scale")
}

fn show(object: &Value, paths: &ScalePaths) -> Value {
    let found = |path: &str| jsonpath::find(object, path).first().copied();
    let number = |path: &str| found(path).and_then(Value::as_i64).unwrap_or(0);
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if !object["metadata"][field].is_null() {
            metadata.set(field, object["metadata"][field].clone());
        }
    }
    let mut status = json!({ "replicas": number(&paths.status_replicas) });
    match found(&paths.selector).filter(|_| !paths.selector.is_empty()) {
        Some(Value::String(text)) => status.set("selector", text.as_str().into()),
        Some(Value::Object(labels)) if labels.values().all(Value::is_string) => {
            // A ReplicationController's are labels, not rules for them.
            let equal = labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
            status.set("selector", equal.collect::<Vec<_>>().join(",").into());
        }
        Some(selector @ Value::Object(_)) => status.set("selector", format_label_selector(selector).into()),
        _ => {}
    }
    // None at all are left out (K8s staging/src/k8s.io/api/autoscaling/v1/types.go).
    let spec = match number(&paths.spec_replicas) {
        0 => json!({}),
        replicas => json!({ "replicas": replicas }),
    };
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}
