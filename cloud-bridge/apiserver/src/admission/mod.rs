//! Admission plugins of the API server: NamespaceLifecycle, ServiceAccount, DefaultTolerationSeconds, and those with
//! their own files; and the refusals of the storages of roles and bindings.

pub(crate) mod attributes;
pub(crate) mod node_restriction;
pub(crate) mod resource_quota;
pub(crate) mod service_account;

mod certificates;
mod default_storage_class;
mod large;
mod limit_ranger;
mod pod_security;
mod priority;
mod rbac;
mod runtime_class;

use sampan_json::SetField;
use serde_json::{Value, json};

use super::auth::node;
use super::storage::{Store, Stored};
use crate::kinds::pod::warnings;
use crate::kinds::service::{cluster_ip, node_port};
use crate::kinds::volume;
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::key::ObjectKey;
use apimachinery::meta;
use attributes::{Attributes, subject};

/// Before a creation.
pub(crate) fn create(store: &Store, ctx: &Attributes<'_>, value: &mut Value) -> ApiResult<()> {
    // K8s apiextensions-apiserver customresource_handler.go: forbidCreateAdmission.
    if let Some(why) = ctx.resource.strategy().refusal() {
        return Err(ApiError::forbidden(&ctx.resource, meta::text(value, "name"), why));
    }
    if ctx.resource.namespaced {
        namespace_lives(store, ctx, value)?;
    }
    large::admit(ctx, value, None)?;
    rbac::restrict(ctx, value, None)?;
    certificates::create(ctx, value)?;
    let rules = ctx.resource.rules();
    limit_ranger::fill(store, ctx, value, None)?;
    if rules.admit_pods {
        pod(store, ctx, value)?;
    }
    priority::write_class(store, ctx, value, None)?;
    if ctx.resource.storage == volume::CLAIMS {
        default_storage_class::apply(store, value)?;
    }
    volume::protect(&ctx.resource.storage, value);
    if rules.cluster_ip
        && let Some(range) = ctx.inner.config.services
    {
        let taken = ctx.inner.held.taken();
        cluster_ip::allocate((range, &*taken), store, &ctx.resource, value)?;
        node_port::allocate(&taken, &ctx.resource, value)?;
    }
    node_restriction::restrict_create(ctx, store, value)
}

/// Before an update of the main resource or of a subresource.
pub(crate) fn update(store: &Store, ctx: &Attributes<'_>, new: &mut Value, old: &Value) -> ApiResult<()> {
    large::admit(ctx, new, Some(old))?;
    rbac::restrict(ctx, new, Some(old))?;
    certificates::update(ctx, new, old)?;
    if ctx.path.subresource.is_empty() {
        if ctx.resource.rules().admit_pods {
            priority::update_pod(new, old);
            tolerations(new, ctx.inner.config.toleration_seconds);
        }
        priority::write_class(store, ctx, new, Some(old))?;
    }
    limit_ranger::fill(store, ctx, new, Some(old))?;
    node_restriction::restrict_update(ctx, new, old)
}

/// Runs the checks that follow validation, on a complete and valid object: a creation or, with `old`, an update.
/// Kubernetes runs them in the same order (apiserver registry/generic/registry/store.go `createValidation`). Returns
/// the warnings for the client.
pub(crate) fn validate(
    store: &Store,
    ctx: &Attributes<'_>,
    new: &Value,
    old: Option<&Value>,
) -> ApiResult<Vec<String>> {
    limit_ranger::judge(store, ctx, new, old)?;
    secrets(store, ctx, new, old)?;
    let mut told = pod_security::admit(store, ctx, new, old)?;
    told.extend(of_template(ctx, new, old));
    Ok(told)
}

/// Refuses secrets that the account of a pod does not allow it: of a new pod, and of its ephemeral containers.
fn secrets(store: &Store, ctx: &Attributes<'_>, pod: &Value, old: Option<&Value>) -> ApiResult<()> {
    if !ctx.resource.rules().admit_pods {
        return Ok(());
    }
    let judge: fn(&Value, &Value) -> Option<String> = match (old, ctx.path.subresource.as_str()) {
        (None, "") => service_account::forbidden_secret,
        (Some(_), "ephemeralcontainers") => service_account::forbidden_ephemeral_secret,
        _ => return Ok(()),
    };
    // A mirror pod has no account.
    let name = pod["spec"]["serviceAccountName"].as_str().unwrap_or_default().to_owned();
    let Some(account) = store.get("serviceaccounts", &ObjectKey { namespace: ctx.path.namespace.clone(), name })?
    else {
        return Ok(());
    };
    match judge(account.value(), pod) {
        Some(why) => Err(ApiError::forbidden(&ctx.resource, subject(pod), &why)),
        None => Ok(()),
    }
}

/// Warnings about a new pod, and about the template of pods in an object that has another one than before.
fn of_template(ctx: &Attributes<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
    let Some(pointer) = ctx.resource.rules().template.filter(|_| ctx.path.subresource.is_empty()) else {
        return Vec::new();
    };
    let before = old.map(|old| old.pointer(pointer));
    match new.pointer(pointer) {
        // The fields of a pod that cause warnings do not change.
        Some(template) if before.is_none_or(|before| !pointer.is_empty() && before != Some(template)) => {
            warnings::of(&pointer.trim_start_matches('/').replace('/', "."), template)
        }
        _ => Vec::new(),
    }
}

/// Sets cluster-wide resources of an updated object: the address and the ports of a Service without them.
pub(crate) fn allocate(ctx: &Attributes<'_>, store: &Store, new: &mut Value, old: &Value) -> ApiResult<()> {
    if ctx.resource.rules().cluster_ip
        && let Some(range) = ctx.inner.config.services
        && old["spec"] != new["spec"]
    {
        let taken = ctx.inner.held.taken();
        cluster_ip::update((range, &*taken), store, &ctx.resource, new, old)?;
        node_port::update(&taken, &ctx.resource, new, old)?;
    }
    Ok(())
}

/// Before a deletion.
pub(crate) fn delete(ctx: &Attributes<'_>, current: &Stored) -> ApiResult<()> {
    let name = current.key.name.as_str();
    if ctx.resource.rules().immortal.contains(&name) {
        let why = format!("this {} may not be deleted", ctx.resource.singular);
        return Err(ApiError::forbidden(&ctx.resource, name, &why));
    }
    priority::delete_class(ctx, current)?;
    node_restriction::restrict_delete(ctx, current)
}

fn namespace_lives(store: &Store, ctx: &Attributes<'_>, value: &Value) -> ApiResult<()> {
    let namespace = ctx.path.namespace.as_str();
    let Some(stored) = store.get("namespaces", &ObjectKey::cluster(namespace))? else {
        return Err(ApiError::no_namespace(namespace));
    };
    if meta::deleting(stored.value()) || stored.value()["status"]["phase"] == "Terminating" {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        return Err(ApiError::forbidden(&ctx.resource, meta::text(value, "name"), &why).with_cause(
            "NamespaceTerminating",
            &format!("namespace {namespace} is being terminated"),
            "metadata.namespace",
        ));
    }
    Ok(())
}

fn pod(store: &Store, ctx: &Attributes<'_>, value: &mut Value) -> ApiResult<()> {
    if !value["spec"].is_object() {
        return Ok(());
    }
    priority::create_pod(store, ctx, value)?;
    tolerations(value, ctx.inner.config.toleration_seconds);
    runtime_class::apply(store, ctx, value)?;
    let Some(account) = service_account::of(value).map(str::to_owned) else {
        if let Some(why) = node::references::forbidden_in_mirror(value) {
            return Err(ApiError::forbidden(&ctx.resource, meta::text(value, "name"), why));
        }
        return Ok(());
    };
    let key = ObjectKey { namespace: ctx.path.namespace.clone(), name: account.clone() };
    let Some(found) = store.get("serviceaccounts", &key)? else {
        let why = format!(
            "error looking up service account {}/{account}: serviceaccount {account:?} not found",
            key.namespace
        );
        return Err(ApiError::forbidden(&ctx.resource, meta::text(value, "name"), &why));
    };
    value.set_at(&["spec", "serviceAccountName"], account.as_str().into());
    value.set_at(&["spec", "serviceAccount"], account.into());
    if ctx.inner.config.accounts.is_some() {
        service_account::inject(found.value(), value, || meta::generate_name("kube-api-access-"));
    }
    let secrets = &found.value()["imagePullSecrets"];
    // An empty list counts as absent (K8s plugin/pkg/admission/serviceaccount).
    if value["spec"]["imagePullSecrets"].as_array().is_none_or(Vec::is_empty) && secrets.is_array() {
        value.set_at(&["spec", "imagePullSecrets"], secrets.clone());
    }
    Ok(())
}

/// Whether a pod that was refused is of the account that its namespace does not have yet, but will in a moment.
pub(crate) fn awaits_account(store: &Store, ctx: &Attributes<'_>, pod: &Value) -> ApiResult<bool> {
    let waits = ctx.resource.rules().admit_pods && service_account::is_of_default(pod);
    if !waits || namespace_lives(store, ctx, pod).is_err() {
        return Ok(false);
    }
    Ok(!has_default_account(store, &ctx.path.namespace)?)
}

/// Whether a namespace has the account that each has.
pub(crate) fn has_default_account(store: &Store, namespace: &str) -> ApiResult<bool> {
    let key = ObjectKey { namespace: namespace.to_owned(), name: service_account::DEFAULT.to_owned() };
    Ok(store.get("serviceaccounts", &key)?.is_some())
}

/// Adds the default tolerations: how long a pod stays on a node that became NotReady, unless the pod has its own (K8s
/// plugin/pkg/admission/defaulttolerationseconds). Without `seconds` pods are not evicted from such a node.
fn tolerations(value: &mut Value, seconds: Option<i64>) {
    let mut list = value["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covered = list.iter().any(|t| {
            let matches_key = t["key"] == key || t["key"].as_str().unwrap_or_default().is_empty();
            let effect = t["effect"].as_str().unwrap_or_default();
            matches_key && (effect == "NoExecute" || effect.is_empty())
        });
        if !covered {
            let mut toleration = json!({ "key": key, "operator": "Exists", "effect": "NoExecute" });
            if let Some(seconds) = seconds {
                toleration.set("tolerationSeconds", seconds.into());
            }
            list.push(toleration);
        }
    }
    value.set_at(&["spec", "tolerations"], list.into());
}
