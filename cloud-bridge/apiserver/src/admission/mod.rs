//! What the API server's admission plugins decide here: NamespaceLifecycle, ServiceAccount, Priority,
//! DefaultTolerationSeconds, NodeRestriction and, in `runtime_class`, RuntimeClass;
//! and what the storages of roles and bindings refuse.

pub(crate) mod attributes;
pub(crate) mod node_restriction;
pub(crate) mod service_account;

mod rbac;
mod runtime_class;

use edge_protocol::json::SetField;
use serde_json::{Value, json};

use super::auth::node;
use super::storage::{Store, Stored};
use crate::kinds::service::cluster_ip;
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::key::ObjectKey;
use apimachinery::meta;
use apimachinery::well_known::MIRROR_ANNOTATION;
use attributes::Attributes;

/// Before a creation.
pub(crate) fn create(store: &Store, ctx: &Attributes<'_>, value: &mut Value) -> ApiResult<()> {
    // K8s apiextensions-apiserver customresource_handler.go: forbidCreateAdmission.
    if let Some(why) = ctx.resource.strategy().refusal() {
        return Err(ApiError::forbidden(&ctx.resource, meta::text(value, "name"), why));
    }
    if ctx.resource.namespaced {
        namespace_lives(store, ctx, value)?;
    }
    rbac::restrict(ctx, value, None)?;
    let rules = ctx.resource.rules();
    if rules.admit_pods {
        pod(store, ctx, value)?;
    }
    if rules.cluster_ip
        && let Some(range) = ctx.inner.config.services
    {
        cluster_ip::allocate(range, store, &ctx.resource, value)?;
    }
    node_restriction::restrict_create(ctx, store, value)
}

/// Before an update of the main resource.
pub(crate) fn update(ctx: &Attributes<'_>, new: &mut Value, old: &Value) -> ApiResult<()> {
    rbac::restrict(ctx, new, Some(old))?;
    node_restriction::restrict_update(ctx, new, old)
}

/// Gives an updated object what it has of the cluster: the address of a Service that had none.
pub(crate) fn allocate(ctx: &Attributes<'_>, store: &Store, new: &mut Value, old: &Value) -> ApiResult<()> {
    if ctx.resource.rules().cluster_ip
        && let Some(range) = ctx.inner.config.services
        && old["spec"]["clusterIP"] != new["spec"]["clusterIP"]
    {
        cluster_ip::allocate(range, store, &ctx.resource, new)?;
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
    priority(ctx, value)?;
    tolerations(value);
    runtime_class::apply(store, ctx, value)?;
    let mirror = value["metadata"]["annotations"][MIRROR_ANNOTATION].is_string();
    if mirror {
        if let Some(why) = node::references::forbidden_in_mirror(value) {
            return Err(ApiError::forbidden(&ctx.resource, meta::text(value, "name"), why));
        }
        return Ok(());
    }
    let account =
        value["spec"]["serviceAccountName"].as_str().filter(|s| !s.is_empty()).unwrap_or("default").to_owned();
    let key = ObjectKey { namespace: ctx.path.namespace.clone(), name: account.clone() };
    let Some(found) = store.get("serviceaccounts", &key)? else {
        let why = format!(
            "error looking up service account {}/{account}: serviceaccount {account:?} not found",
            ctx.path.namespace
        );
        return Err(ApiError::forbidden(&ctx.resource, meta::text(value, "name"), &why));
    };
    value.set_at(&["spec", "serviceAccountName"], account.as_str().into());
    value.set_at(&["spec", "serviceAccount"], account.into());
    if ctx.inner.config.accounts.is_some() {
        service_account::inject(found.value(), value, || meta::generate_name("kube-api-access-"));
    }
    let secrets = &found.value()["imagePullSecrets"];
    // An empty list is none (K8s plugin/pkg/admission/serviceaccount).
    if value["spec"]["imagePullSecrets"].as_array().is_none_or(Vec::is_empty) && secrets.is_array() {
        value.set_at(&["spec", "imagePullSecrets"], secrets.clone());
    }
    Ok(())
}

/// The two classes that every cluster has.
const CLASSES: &[(&str, i64)] = &[("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

fn priority(ctx: &Attributes<'_>, value: &mut Value) -> ApiResult<()> {
    let class = value["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
    let priority = if class.is_empty() {
        0
    } else {
        match CLASSES.iter().find(|(name, _)| *name == class) {
            Some((_, priority)) => *priority,
            None => {
                let why = format!("no PriorityClass with name {class} was found");
                return Err(ApiError::forbidden(&ctx.resource, meta::text(value, "name"), &why));
            }
        }
    };
    let set = value["spec"]["priority"].as_i64();
    if set.is_some_and(|p| p != priority) {
        let why = format!(
            "the integer value of priority ({}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name",
            set.unwrap_or_default()
        );
        return Err(ApiError::forbidden(&ctx.resource, meta::text(value, "name"), &why));
    }
    value.set_at(&["spec", "priority"], priority.into());
    if value["spec"]["preemptionPolicy"].is_null() {
        value.set_at(&["spec", "preemptionPolicy"], "PreemptLowerPriority".into());
    }
    Ok(())
}

/// Pods stay five minutes on a node that went NotReady unless they say otherwise.
fn tolerations(value: &mut Value) {
    const SECONDS: i64 = 300;
    let mut list = value["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covered = list.iter().any(|t| {
            let matches_key = t["key"] == key || t["key"].as_str().unwrap_or_default().is_empty();
            let effect = t["effect"].as_str().unwrap_or_default();
            matches_key && (effect == "NoExecute" || effect.is_empty())
        });
        if !covered {
            list.push(json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS }));
        }
    }
    value.set_at(&["spec", "tolerations"], list.into());
}
