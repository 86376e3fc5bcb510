//! The scale subresource: an `autoscaling/v1` Scale over the paths that the kind names.

use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::api::autoscaling::v1::Scale;
use sampan_json::SetField;
use serde_json::{Value, json};

use crate::codec::jsonpath;
use crate::codec::parse;
use crate::codec::yaml::Document;
use crate::patch::{merge_keys, strategic};
use crate::registry::answer::Answer;
use crate::registry::context::Context;
use crate::registry::draft::{Drafted, Sent};
use crate::registry::patch::{APPLY, JSON, MERGE, STRATEGIC, apply_to};
use crate::registry::perform::{Make, write};
use crate::registry::{apply, update};
use crate::resource::status::{ApiError, ApiResult};
use crate::resource::strategy::ScalePaths;
use crate::resource::typed;
use crate::storage::Stored;
use apimachinery::field::FieldError;
use apimachinery::json::text;
use apimachinery::meta;
use apimachinery::selector::format_label_selector;

/// Memory that the values of an applied Scale may take.
const SCALE_MAX: usize = 64 << 10;

/// GET, PUT and PATCH.
pub(crate) fn scale(ctx: &mut Context<'_>, verb: &str, media: &str, body: &Bytes) -> ApiResult<Answer> {
    let resource = Arc::clone(&ctx.resource);
    let paths = resource.strategy().scale().ok_or_else(ApiError::no_resource)?;
    let make: Make = match verb {
        "get" => {
            let current = ctx.current(&ctx.store())?;
            let live = resource.read(current.value());
            // A custom resource may lack it (K8s registry/customresource/etcd.go, `ScaleREST`); a write creates it.
            if jsonpath::find(&live, &paths.spec_replicas).is_empty() {
                let why = format!("the spec replicas field {:?} does not exist", paths.spec_replicas);
                return Err(ApiError::internal(why));
            }
            return Ok(Answer::Plain(200, show(&live, paths)));
        }
        "update" => updated,
        "patch" => patched,
        _ => return Err(ApiError::method_not_allowed()),
    };
    // The object itself is written.
    let mut path = ctx.path.clone();
    path.subresource.clear();
    let mut main = Context {
        inner: ctx.inner,
        user: ctx.user,
        flow: ctx.flow,
        resource: Arc::clone(&resource),
        path: &path,
        query: ctx.query,
        verb: ctx.verb.clone(),
        now: ctx.now,
        warnings: Vec::new(),
        writer: ctx.writer.clone(),
        strict: None,
        cel: std::mem::take(&mut ctx.cel),
        aside: std::mem::take(&mut ctx.aside),
        foresees: ctx.foresees,
        awaits_account: false,
    };
    let sent = Sent { body: body.clone(), media: media.to_owned() };
    let outcome = write(&mut main, sent, make);
    (ctx.cel, ctx.aside) = (main.cel, main.aside);
    match outcome? {
        Answer::Stored(code, stored) => Ok(Answer::Plain(code, show(stored.value(), paths))),
        other => Ok(other),
    }
}

fn updated(ctx: &mut Context<'_>, sent: &Sent, current: Option<&Arc<Stored>>) -> ApiResult<Drafted> {
    let current = current.ok_or_else(|| ApiError::not_found(&ctx.resource, &ctx.path.name))?;
    scaled(ctx, current, &typed::read::<Scale>(&sent.body, "Scale")?, false)
}

fn patched(ctx: &mut Context<'_>, sent: &Sent, current: Option<&Arc<Stored>>) -> ApiResult<Drafted> {
    let current = current.ok_or_else(|| ApiError::not_found(&ctx.resource, &ctx.path.name))?;
    if sent.media == APPLY {
        return scaled(ctx, current, &applied(&sent.body, &ctx.path.name)?, true);
    }
    let resource = Arc::clone(&ctx.resource);
    let paths = resource.strategy().scale().ok_or_else(ApiError::no_resource)?;
    let shown = show(&resource.read(current.value()), paths);
    scaled(ctx, current, &merged(shown, &sent.media, &sent.body, resource.is_custom())?, false)
}

/// The object with the replicas of a Scale.
fn scaled(ctx: &mut Context<'_>, current: &Arc<Stored>, wanted: &Value, applies: bool) -> ApiResult<Drafted> {
    let resource = Arc::clone(&ctx.resource);
    let paths = resource.strategy().scale().ok_or_else(ApiError::no_resource)?;
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let error = FieldError::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
        return Err(ApiError::invalid(&resource, &ctx.path.name, &[error]));
    }
    let place = jsonpath::fields(&paths.spec_replicas).ok_or_else(ApiError::no_resource)?;
    let place: Vec<&str> = place.iter().map(String::as_str).collect();
    let dry_run = ctx.dry_run()?;
    let live = resource.read(current.value());
    let (mut new, managed) = if applies {
        let part = number_at(json!({}), &place, &wanted["spec"]["replicas"])?;
        let (new, managed) = apply::part(ctx, &live, part)?;
        (new, Some(managed))
    } else {
        (number_at(live.into_owned(), &place, &replicas.into())?, None)
    };
    let version = meta::text(wanted, "resourceVersion");
    if !version.is_empty() {
        meta::set(&mut new, "resourceVersion", version.into());
    }
    Ok(Drafted { draft: update::change(ctx, current, new, None, managed)?, dry_run })
}

/// The object with a number of replicas. Null leaves it as it is.
fn number_at(mut object: Value, place: &[&str], replicas: &Value) -> ApiResult<Value> {
    if replicas.is_null() {
        return Ok(object);
    }
    object.set_at(place, replicas.clone());
    if object.at_mut(place).is_none_or(|set| set != replicas) {
        let why = format!("the object has something other than fields on the way to {}", place.join("."));
        return Err(ApiError::unprocessable(why));
    }
    Ok(object)
}

/// The applied Scale, with only the fields of its client.
fn applied(body: &Bytes, name: &str) -> ApiResult<Value> {
    let document = Document::read_within(body, SCALE_MAX)
        .map_err(|why| ApiError::bad_request(format!("error decoding YAML: {why}")))?;
    let given = |field: &str| text(&document.value, field);
    if (given("apiVersion"), given("kind")) != ("autoscaling/v1", "Scale") {
        let (version, kind) = (given("apiVersion"), given("kind"));
        return Err(ApiError::bad_request(format!("invalid object type: {version}, Kind={kind}")));
    }
    let scale = typed::value::<Scale>(document.value, "Scale")?;
    match meta::text(&scale, "name") {
        found if found.is_empty() || found == name => Ok(scale),
        found => Err(ApiError::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        ))),
    }
}

/// The Scale after a patch. As for the object itself, custom kinds do not support strategic merge.
fn merged(shown: Value, media: &str, body: &Bytes, custom: bool) -> ApiResult<Value> {
    let accepted = if custom { &[JSON, MERGE, APPLY][..] } else { &[JSON, MERGE, STRATEGIC, APPLY] };
    if !accepted.contains(&media) {
        return Err(ApiError::unsupported_media_type(&accepted.join(", ")));
    }
    let (change, _) = parse::parse_within(body, parse::TENANT_MEMORY_MAX)
        .map_err(|e| ApiError::bad_request(format!("error decoding patch: {}", parse::reason(&e))))?;
    let wanted = apply_to(shown, change, media, |shown, change| strategic::apply(&merge_keys::OBJECT, shown, change))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applied_scale_is_what_its_client_wrote() {
        let read = |text: &'static str| applied(&Bytes::from_static(text.as_bytes()), "d");
        let scale = read("apiVersion: autoscaling/v1\nkind: Scale\nspec: {replicas: 3}").unwrap();
        assert_eq!(scale["spec"]["replicas"], 3);
        assert!(read("{apiVersion: autoscaling/v1, kind: Scale}").unwrap()["spec"]["replicas"].is_null());
        for wrong in [
            "{apiVersion: apps/v1, kind: Deployment}",
            "{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: other}}",
            "{apiVersion: autoscaling/v1, kind: Scale, spec: {replicas: many}}",
            "[1]",
        ] {
            assert_eq!(read(wrong).unwrap_err().code, 400, "{wrong}");
        }
    }

    #[test]
    fn number_is_put_where_fields_lead() {
        let place = ["spec", "many", "bulbs"];
        assert_eq!(number_at(json!({}), &place, &json!(2)), Ok(json!({"spec": {"many": {"bulbs": 2}}})));
        assert_eq!(number_at(json!({}), &place, &Value::Null), Ok(json!({})), "nothing is applied");
        assert_eq!(number_at(json!({"spec": {"many": 1}}), &place, &json!(2)).unwrap_err().code, 422);
    }
}
