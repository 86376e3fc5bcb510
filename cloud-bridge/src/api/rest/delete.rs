//! Deletion: at once, graceful, or waiting for finalizers, after the API server's generic store.

use std::sync::Arc;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Answer, Context, dry_run, list};
use crate::api::error::{ApiError, ApiResult};
use crate::api::meta::{self, FOREGROUND, ORPHAN};
use crate::api::request::Query;
use crate::api::resource::Resource;
use crate::api::server::Inner;
use crate::api::storage::{Store, Stored};
use crate::api::strategy::FieldError;
use crate::api::{admission, crd, lifecycle};

/// `DeleteOptions`, as far as they count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub grace: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub orphan_dependents: Option<bool>,
    pub propagation: Option<String>,
    pub dry_run: bool,
}

impl Options {
    /// Reads the body when there is one, else the query.
    pub(crate) fn read(body: &Bytes, query: &Query) -> ApiResult<Self> {
        if body.is_empty() {
            return Self {
                grace: query
                    .number("gracePeriodSeconds")
                    .map_err(|text| ApiError::bad_request(format!("gracePeriodSeconds: {text:?} is no number")))?,
                orphan_dependents: query.get("orphanDependents").map(|_| query.flag("orphanDependents")),
                propagation: query.get("propagationPolicy").map(str::to_owned),
                dry_run: dry_run(query.all("dryRun"), "DeleteOptions")?,
                ..Self::default()
            }
            .checked();
        }
        let value: Value = serde_json::from_slice(body).map_err(|e| ApiError::bad_request(e.to_string()))?;
        Self::from_value(&value)
    }

    /// Reads a `DeleteOptions` object.
    pub(crate) fn from_value(value: &Value) -> ApiResult<Self> {
        let text = |v: &Value| v.as_str().map(str::to_owned);
        Self {
            grace: value["gracePeriodSeconds"].as_i64(),
            uid: text(&value["preconditions"]["uid"]),
            resource_version: text(&value["preconditions"]["resourceVersion"]),
            orphan_dependents: value["orphanDependents"].as_bool(),
            propagation: text(&value["propagationPolicy"]),
            dry_run: dry_run(
                value["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str),
                "DeleteOptions",
            )?,
        }
        .checked()
    }

    fn checked(self) -> ApiResult<Self> {
        let policy = self.propagation.as_deref();
        if let Some(policy) = policy
            && self.orphan_dependents.is_some()
        {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            let error = FieldError::invalid("propagationPolicy", &policy.into(), why);
            return Err(ApiError::options("DeleteOptions", &error));
        }
        match policy {
            None | Some("Background" | "Foreground" | "Orphan") => Ok(self),
            Some(other) => {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                let error = FieldError::not_supported("propagationPolicy", &other.into(), &known);
                Err(ApiError::options("DeleteOptions", &error))
            }
        }
    }
}

/// What became of the object.
pub(crate) struct Outcome {
    /// Its last or present state.
    pub object: Value,
    /// False while grace or finalizers hold it.
    pub deleted: bool,
}

/// DELETE of one object.
pub(crate) fn delete(ctx: &mut Context<'_>, body: &Bytes) -> ApiResult<Answer> {
    let options = Options::read(body, ctx.query)?;
    let inner = ctx.inner;
    let mut store = inner.store();
    let current = ctx.current(&store)?;
    admission::delete(ctx, &store, &current)?;
    let outcome = remove(inner, &mut store, &ctx.resource, &current, &options, ctx.now)?;
    Ok(answer(&ctx.resource, outcome))
}

/// Kinds that answer a deletion with the object; the others answer with a Status.
fn returns_object(resource: &Resource) -> bool {
    !resource.is_custom()
        && matches!(
            resource.plural.as_ref(),
            "pods" | "services" | "namespaces" | "serviceaccounts" | "persistentvolumes" | "persistentvolumeclaims"
        )
}

fn answer(resource: &Resource, outcome: Outcome) -> Answer {
    if !outcome.deleted || returns_object(resource) {
        return Answer::Object(200, outcome.object);
    }
    let mut details = json!({
        "name": meta::text(&outcome.object, "name"),
        "kind": resource.plural,
        "uid": meta::text(&outcome.object, "uid"),
    });
    if !resource.group.is_empty() {
        details["group"] = resource.group.as_ref().into();
    }
    Answer::Plain(
        200,
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details }),
    )
}

/// DELETE of a collection.
pub(crate) fn delete_collection(ctx: &mut Context<'_>, body: &Bytes) -> ApiResult<Answer> {
    let options = Options::read(body, ctx.query)?;
    let selection = list::Selection::new(ctx)?;
    let inner = ctx.inner;
    let mut store = inner.store();
    let items = selection.now(&store)?;
    for stored in &items {
        admission::delete(ctx, &store, stored)?;
        // Hooks of an earlier item may have removed a later one.
        if let Some(current) = store.get(&ctx.resource.storage, &stored.key)? {
            remove(inner, &mut store, &ctx.resource, &current, &options, ctx.now)?;
        }
    }
    Ok(Answer::List(list::Listed { items, rev: store.revision(), next: None, remaining: None }))
}

/// Deletes or begins to delete an object.
pub(crate) fn remove(
    inner: &Inner,
    store: &mut Store,
    resource: &Arc<Resource>,
    current: &Arc<Stored>,
    options: &Options,
    now: Timestamp,
) -> ApiResult<Outcome> {
    preconditions(resource, current, options)?;
    let mut options = options.clone();
    options.grace = options.grace.map(|g| if g < 0 { 1 } else { g });
    if resource.group.is_empty() && resource.plural == "namespaces" {
        return remove_namespace(inner, store, resource, current, &options, now);
    }
    let mut object = current.value().clone();
    let graceful = match before(resource, &mut object, &mut options, now) {
        Graceful::Pending => return Ok(Outcome { object: current.value().clone(), deleted: false }),
        Graceful::No => false,
        Graceful::Yes => true,
    };
    let mut finalizers = collector_finalizers(resource, &object, &options);
    if resource.group == "apiextensions.k8s.io" && !meta::deleting(&object) {
        // A definition stays until its objects are gone.
        finalizers.push(crd::FINALIZER.into());
    }
    meta::set_finalizers(&mut object, &finalizers);
    let held = !finalizers.is_empty();
    if graceful && (held || options.grace.unwrap_or(0) > 0) {
        return mark(inner, store, resource, current, object, options.dry_run);
    }
    if held {
        mark_now(&mut object, now);
        return mark(inner, store, resource, current, object, options.dry_run);
    }
    if options.dry_run {
        return Ok(Outcome { object, deleted: true });
    }
    let mut last = Arc::clone(current);
    if graceful {
        // A graceful deletion without grace is still an update first: watchers see deletionTimestamp.
        last = store.write(&resource.storage, object, Some(current), None)?;
        lifecycle::after_write(inner, store, resource, &last, Some(current))?;
    }
    let last = lifecycle::remove(inner, store, resource, &last)?;
    Ok(Outcome { object: last.value().clone(), deleted: true })
}

fn mark(
    inner: &Inner,
    store: &mut Store,
    resource: &Arc<Resource>,
    current: &Arc<Stored>,
    object: Value,
    dry_run: bool,
) -> ApiResult<Outcome> {
    if dry_run || object == *current.value() {
        return Ok(Outcome { object, deleted: false });
    }
    let stored = store.write(&resource.storage, object, Some(current), None)?;
    lifecycle::after_write(inner, store, resource, &stored, Some(current))?;
    Ok(Outcome { object: stored.value().clone(), deleted: false })
}

fn preconditions(resource: &Resource, current: &Stored, options: &Options) -> ApiResult<()> {
    let value = current.value();
    // The API server names the kind here, not the plural.
    let conflict = |why: String| {
        let mut error = ApiError::conflict(resource, &current.key.name, &why);
        error.message = error.message.replacen(resource.plural.as_ref(), &resource.kind, 1);
        error.details["kind"] = resource.kind.as_ref().into();
        Err(error)
    };
    let uid = meta::text(value, "uid");
    if let Some(asked) = options.uid.as_deref()
        && asked != uid
    {
        return conflict(format!(
            "the UID in the precondition ({asked}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        ));
    }
    let version = current.rev.to_string();
    if let Some(asked) = options.resource_version.as_deref()
        && asked != version
    {
        return conflict(format!(
            "the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        ));
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Graceful {
    /// The kind knows no grace.
    No,
    /// The object carries its deletionTimestamp now.
    Yes,
    /// A deletion at least as quick is under way.
    Pending,
}

/// The API server's BeforeDelete with the pod strategy's CheckGracefulDelete; only pods are graceful.
fn before(resource: &Resource, object: &mut Value, options: &mut Options, now: Timestamp) -> Graceful {
    if !(resource.group.is_empty() && resource.plural == "pods") {
        return Graceful::No;
    }
    let later = |from: Timestamp, seconds: i64| from.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(from);
    if meta::deleting(object) {
        let Some(left) = meta::grace(object).filter(|g| *g != 0) else { return Graceful::No };
        let Some(mut asked) = options.grace else {
            options.grace = Some(left);
            return Graceful::Pending;
        };
        if asked >= left {
            return Graceful::Pending;
        }
        let old: Timestamp = meta::text(object, "deletionTimestamp").parse().unwrap_or(now);
        let mut new = later(old, asked - left);
        if new < now {
            new = now;
            if asked != 0 {
                asked = 1;
            }
        }
        meta::set(object, "deletionTimestamp", meta::rfc3339(new).into());
        meta::set(object, "deletionGracePeriodSeconds", asked.into());
        return Graceful::Yes;
    }
    let mut period = options.grace.or(object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(0);
    let unscheduled = object["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    if unscheduled || matches!(object["status"]["phase"].as_str(), Some("Failed" | "Succeeded")) {
        period = 0;
    }
    if period < 0 {
        period = 1;
    }
    options.grace = Some(period);
    meta::set(object, "deletionTimestamp", meta::rfc3339(later(now, period)).into());
    meta::set(object, "deletionGracePeriodSeconds", period.into());
    if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|g| *g > 0) {
        meta::set(object, "generation", (generation + 1).into());
    }
    Graceful::Yes
}

fn mark_now(object: &mut Value, now: Timestamp) {
    if !meta::deleting(object)
        && let Some(generation) = object["metadata"]["generation"].as_i64().filter(|g| *g > 0)
    {
        meta::set(object, "generation", (generation + 1).into());
    }
    let later = meta::text(object, "deletionTimestamp").parse::<Timestamp>().is_ok_and(|t| t > now);
    if !meta::deleting(object) || later {
        meta::set(object, "deletionTimestamp", meta::rfc3339(now).into());
    }
    meta::set(object, "deletionGracePeriodSeconds", 0.into());
}

/// The finalizers with those of the garbage collector as the options want them.
fn collector_finalizers(resource: &Resource, object: &Value, options: &Options) -> Vec<String> {
    let had = meta::finalizers(object);
    // Events take no part in garbage collection.
    if resource.storage == "events" {
        return had;
    }
    let has = |name: &str| had.iter().any(|f| f == name);
    let (orphan, foreground) = match (options.orphan_dependents, options.propagation.as_deref()) {
        (Some(orphan), _) => (orphan, false),
        (None, Some("Orphan")) => (true, false),
        (None, Some("Foreground")) => (false, true),
        (None, Some(_)) => (false, false),
        (None, None) => (has(ORPHAN), has(FOREGROUND) && !has(ORPHAN)),
    };
    let mut list: Vec<String> = had.into_iter().filter(|f| f != ORPHAN && f != FOREGROUND).collect();
    if orphan {
        list.push(ORPHAN.into());
    }
    if foreground {
        list.push(FOREGROUND.into());
    }
    list
}

/// A namespace first turns Terminating; the collector empties it and takes its finalizer off.
fn remove_namespace(
    inner: &Inner,
    store: &mut Store,
    resource: &Arc<Resource>,
    current: &Arc<Stored>,
    options: &Options,
    now: Timestamp,
) -> ApiResult<Outcome> {
    let mut object = current.value().clone();
    if !meta::deleting(&object) {
        meta::set(&mut object, "deletionTimestamp", meta::rfc3339(now).into());
        object["status"]["phase"] = "Terminating".into();
        let finalizers = collector_finalizers(resource, &object, options);
        meta::set_finalizers(&mut object, &finalizers);
        return mark(inner, store, resource, current, object, options.dry_run);
    }
    if object["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty()) || !meta::finalizers(&object).is_empty() {
        return Ok(Outcome { object, deleted: false });
    }
    if options.dry_run {
        return Ok(Outcome { object, deleted: true });
    }
    let last = lifecycle::remove(inner, store, resource, current)?;
    Ok(Outcome { object: last.value().clone(), deleted: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::resource::builtin_resources;

    fn pods() -> Arc<Resource> {
        builtin_resources().into_iter().find(|r| r.plural == "pods").unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn running() -> Value {
        json!({"metadata": {"name": "p", "generation": 1}, "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Running"}})
    }

    #[test]
    fn grace_comes_from_the_pod_and_may_only_shrink() {
        let mut pod = running();
        let now = at("2026-01-01T00:00:00Z");
        assert_eq!(before(&pods(), &mut pod, &mut Options::default(), now), Graceful::Yes);
        assert_eq!(meta::text(&pod, "deletionTimestamp"), "2026-01-01T00:00:30Z");
        assert_eq!(meta::grace(&pod), Some(30));
        assert_eq!(pod["metadata"]["generation"], 2);
        let mut longer = Options { grace: Some(60), ..Options::default() };
        assert_eq!(before(&pods(), &mut pod, &mut longer, now), Graceful::Pending);
        let mut shorter = Options { grace: Some(5), ..Options::default() };
        assert_eq!(before(&pods(), &mut pod, &mut shorter, at("2026-01-01T00:00:10Z")), Graceful::Yes);
        assert_eq!(meta::text(&pod, "deletionTimestamp"), "2026-01-01T00:00:10Z");
        assert_eq!(meta::grace(&pod), Some(1), "a grace that has passed shrinks to one second");
        assert_eq!(pod["metadata"]["generation"], 2);
    }

    #[test]
    fn unscheduled_and_finished_pods_go_at_once() {
        for change in [json!({"spec": {"nodeName": ""}}), json!({"status": {"phase": "Succeeded"}})] {
            let mut pod = running();
            crate::api::patch::merge(&mut pod, &change);
            let mut options = Options::default();
            before(&pods(), &mut pod, &mut options, at("2026-01-01T00:00:00Z"));
            assert_eq!(options.grace, Some(0));
        }
    }

    #[test]
    fn propagation_decides_finalizers() {
        let object = json!({"metadata": {"finalizers": ["a/b", "orphan"]}});
        let with = |policy: Option<&str>| {
            let options = Options { propagation: policy.map(str::to_owned), ..Options::default() };
            collector_finalizers(&pods(), &object, &options)
        };
        assert_eq!(with(None), ["a/b", "orphan"]);
        assert_eq!(with(Some("Background")), ["a/b"]);
        assert_eq!(with(Some("Foreground")), ["a/b", "foregroundDeletion"]);
    }
}
