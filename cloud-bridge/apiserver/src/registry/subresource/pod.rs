//! The subresources of pods: binding, log.

use std::net::IpAddr;

use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Binding;
use sampan_json::SetField;
use serde_json::{Value, json};

use crate::registry::answer::Answer;
use crate::registry::context::Context;
use crate::resource::status::{ApiError, ApiResult};
use crate::resource::typed;
use crate::storage::Stored;
use apimachinery::field::FieldError;
use apimachinery::flow::Flow;
use apimachinery::meta;
use kubelet_api::backend::{BackendError, LogOptions, PodOnNode};
use kubelet_api::streaming::proxy::Port;

/// A Status of success.
pub(super) fn success(code: u16) -> Answer {
    Answer::Plain(
        code,
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code }),
    )
}

/// POST of `pods/NAME/binding`: sets `spec.nodeName`.
pub(crate) fn bind(ctx: &mut Context<'_>, body: &Bytes) -> ApiResult<Answer> {
    let binding = typed::read::<Binding>(body, "Binding")?;
    let dry_run = ctx.dry_run()?;
    let name = ctx.path.name.clone();
    let given = meta::text(&binding, "name");
    if !given.is_empty() && given != name {
        return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
    }
    let mut errors = Vec::new();
    let kind = binding["target"]["kind"].as_str().unwrap_or_default();
    if !matches!(kind, "" | "Node") {
        errors.push(FieldError::not_supported("target.kind", &kind.into(), &["Node", "<empty>"]));
    }
    let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
    if node.is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    if !errors.is_empty() {
        let mut error = ApiError::invalid(&ctx.resource, &name, &errors);
        error.message = error.message.replacen("Pod", "Binding", 1);
        error.details.set("kind", "Binding".into());
        return Err(error);
    }
    let inner = ctx.inner;
    let mut store = inner.store();
    let current = ctx.current(&store)?;
    let mut pod = current.value().clone();
    let uid = meta::text(&binding, "uid");
    if !uid.is_empty() && uid != meta::text(&pod, "uid") {
        let why = crate::registry::update::precondition(&ctx.resource, &current, uid);
        return Err(binding_conflict(ctx, &why));
    }
    if meta::deleting(&pod) {
        return Err(binding_conflict(ctx, &format!("pod {name} is being deleted, cannot be assigned to a host")));
    }
    let bound = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if !bound.is_empty() {
        return Err(binding_conflict(ctx, &format!("pod {name} is already assigned to node {bound:?}")));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|g| !g.is_empty()) {
        return Err(binding_conflict(ctx, &format!("pod {name} has non-empty .spec.schedulingGates")));
    }
    pod.set_at(&["spec", "nodeName"], node.into());
    if let Some(annotations) = binding["metadata"]["annotations"].as_object() {
        for (key, value) in annotations {
            pod.set_at(&["metadata", "annotations", key], value.clone());
        }
    }
    set_scheduled(&mut pod, ctx.now);
    if !dry_run {
        store.write(&ctx.resource.storage, pod, Some(&current), None)?;
    }
    Ok(success(201))
}

fn binding_conflict(ctx: &Context<'_>, why: &str) -> ApiError {
    let mut error = ApiError::conflict(&ctx.resource, &ctx.path.name, why);
    error.message = error.message.replacen("pods", "pods/binding", 1);
    error.details.set("kind", "pods/binding".into());
    error
}

/// The condition that the binding sets.
fn set_scheduled(pod: &mut Value, now: Timestamp) {
    let condition = json!({
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": meta::rfc3339(now),
    });
    set_condition(pod, condition);
}

/// Puts a condition in the place of the one of its type.
pub(super) fn set_condition(pod: &mut Value, condition: Value) {
    if !pod["status"].is_object() {
        pod.set("status", json!({}));
    }
    let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|c| c["type"] != condition["type"]);
    conditions.push(condition);
    pod.set_at(&["status", "conditions"], conditions.into());
}

/// The names of one list of containers.
fn names(spec: &Value, list: &str) -> Vec<String> {
    let items = spec[list].as_array();
    items.into_iter().flatten().filter_map(|c| c["name"].as_str()).map(str::to_owned).collect()
}

/// Checks the query of `pods/NAME/log` and finds the node; `None` for an unscheduled pod, whose log is empty.
pub(crate) fn log_request(ctx: &Context<'_>, flow: &Flow) -> ApiResult<Option<(PodOnNode, LogOptions)>> {
    let store = ctx.store();
    let current = ctx.current(&store)?;
    let pod = current.value();
    let options = log_options(ctx, pod)?;
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if node.is_empty() {
        return Ok(None);
    }
    Ok(Some((place_of(&current, node, flow), options)))
}

/// The node of the path's pod and, if needed, the container.
///
/// # Errors
/// The pod or container does not exist, or the pod has no node yet (K8s pkg/registry/core/pod/strategy.go
/// streamLocation).
pub(crate) fn place(ctx: &Context<'_>, flow: &Flow, with_container: bool) -> ApiResult<(PodOnNode, String)> {
    let store = ctx.store();
    let current = ctx.current(&store)?;
    let pod = current.value();
    let container = if with_container { container(ctx, pod)? } else { String::new() };
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if node.is_empty() {
        return Err(ApiError::bad_request(format!("pod {} does not have a host assigned", current.key.name)));
    }
    Ok((place_of(&current, node, flow), container))
}

/// Target of a request to a `proxy` subresource.
pub(crate) struct Proxied {
    pub(crate) pod: PodOnNode,
    pub(crate) port: Port,
}

/// What `pods/NAME/proxy` means: the pod, and the port if the name has one or a container declares one
/// (K8s pkg/registry/core/pod/strategy.go `ResourceLocation`).
pub(crate) fn proxied(ctx: &Context<'_>, flow: &Flow) -> ApiResult<Proxied> {
    let invalid = || ApiError::bad_request(format!("invalid pod request {:?}", ctx.path.name));
    let (scheme, name, port) = scheme_name_port(&ctx.path.name).ok_or_else(invalid)?;
    let store = ctx.store();
    let current =
        store.get(&ctx.resource.storage, &ctx.key_of(name))?.ok_or_else(|| ApiError::not_found(&ctx.resource, name))?;
    let pod = current.value();
    let declared = || {
        let containers = pod["spec"]["containers"].as_array()?;
        containers.iter().find_map(|container| container["ports"].get(0)?["containerPort"].as_u64())
    };
    let address = pod["status"]["podIP"].as_str().and_then(|ip| ip.parse().ok());
    if !address.is_some_and(global_unicast) {
        return Err(ApiError::bad_request("address not allowed"));
    }
    let port = if port.is_empty() { Some(declared().unwrap_or(80)) } else { port.parse().ok() };
    let number = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0).ok_or_else(invalid)?;
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    Ok(Proxied { pod: place_of(&current, node, flow), port: Port { number, tls: scheme == "https" } })
}

/// `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`.
pub(super) fn scheme_name_port(id: &str) -> Option<(&str, &str, &str)> {
    let parts = match *id.split(':').collect::<Vec<_>>().as_slice() {
        [name] => ("", name, ""),
        [name, port] => ("", name, port),
        [scheme @ ("" | "http" | "https"), name, port] => (scheme, name, port),
        _ => return None,
    };
    (!parts.1.is_empty()).then_some(parts)
}

/// `::ffff:127.0.0.1` is 127.0.0.1, as for Go (`IP.IsGlobalUnicast`).
pub(super) fn global_unicast(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !address.is_unspecified() && !address.is_loopback() && !address.is_multicast() && !link_local
}

pub(super) fn place_of(current: &Stored, node: &str, flow: &Flow) -> PodOnNode {
    PodOnNode {
        node: node.to_owned(),
        namespace: current.key.namespace.clone(),
        pod: current.key.name.clone(),
        uid: meta::text(current.value(), "uid").to_owned(),
        flow: flow.clone(),
    }
}

fn log_options(ctx: &Context<'_>, pod: &Value) -> ApiResult<LogOptions> {
    let query = ctx.query;
    let mut errors = Vec::new();
    let mut number = |name: &str, least: i64| -> ApiResult<Option<i64>> {
        let value = query
            .number(name)
            .map_err(|text| ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))?;
        if value.is_some_and(|v| v < least) {
            let why = if least == 0 { "must be greater than or equal to 0" } else { "must be greater than 0" };
            errors.push(FieldError::invalid(name, &value.into(), why));
        }
        Ok(value)
    };
    let tail_lines = number("tailLines", 0)?;
    let limit_bytes = number("limitBytes", 1)?;
    let since_seconds = number("sinceSeconds", 1)?;
    let since_time = query.get("sinceTime").filter(|t| !t.is_empty()).map(str::to_owned);
    if since_seconds.is_some() && since_time.is_some() {
        errors.push(FieldError::forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified"));
    }
    if !errors.is_empty() {
        let mut error = ApiError::invalid(&ctx.resource, &ctx.path.name, &errors);
        error.message = error.message.replacen("Pod", "PodLogOptions", 1);
        error.details.set("kind", "PodLogOptions".into());
        return Err(error);
    }
    Ok(LogOptions {
        container: container(ctx, pod)?,
        follow: query.flag("follow"),
        previous: query.flag("previous"),
        timestamps: query.flag("timestamps"),
        since_seconds,
        since_time,
        tail_lines,
        limit_bytes,
    })
}

fn container(ctx: &Context<'_>, pod: &Value) -> ApiResult<String> {
    let spec = &pod["spec"];
    let name = &ctx.path.name;
    let (containers, init, ephemeral) =
        (names(spec, "containers"), names(spec, "initContainers"), names(spec, "ephemeralContainers"));
    let asked = ctx.query.text("container");
    if asked.is_empty() {
        if let [only] = containers.as_slice()
            && init.is_empty()
        {
            return Ok(only.clone());
        }
        let all: Vec<&str> = init.iter().chain(&containers).map(String::as_str).collect();
        let mut text = format!("a container name must be specified for pod {name}, choose one of: [{}]", all.join(" "));
        if !ephemeral.is_empty() {
            text += &format!(" or one of the ephemeral containers: [{}]", ephemeral.join(" "));
        }
        return Err(ApiError::bad_request(text));
    }
    if containers.iter().chain(&init).chain(&ephemeral).any(|c| c == asked) {
        return Ok(asked.to_owned());
    }
    Err(ApiError::bad_request(format!("container {asked} is not valid for pod {name}")))
}

/// A node's refusal as the API server passes it on.
pub(crate) fn backend_error(error: &BackendError) -> ApiError {
    match error {
        BackendError::BadRequest(text) => ApiError::bad_request(text.as_str()),
        BackendError::NotFound(text) => {
            let mut found = ApiError::bad_request(text.as_str());
            found.code = 404;
            found.reason = "NotFound";
            found
        }
        BackendError::Unavailable(text) => ApiError::unavailable(text.as_str()),
        BackendError::Busy(text) => ApiError::too_many_requests(text.as_str()),
        BackendError::Internal(text) => ApiError::internal(text),
    }
}
