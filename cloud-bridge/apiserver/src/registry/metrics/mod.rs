//! `metrics.k8s.io/v1beta1`: what `kubectl top` reads, measured at the nodes when it is asked. On a cluster
//! metrics-server does this.

mod usage;

use edge_protocol::json::SetField;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Context;
use crate::kinds::metrics::VERBS;
use crate::resource::status::{ApiError, ApiResult};
use crate::state::samples::Measured;
use crate::storage::Stored;
use apimachinery::meta;
use apimachinery::selector::{FieldSelector, LabelSelector};
use usage::Usage;

const API_VERSION: &str = "metrics.k8s.io/v1beta1";
/// Nodes asked at the same time.
const CONCURRENCY: usize = 16;

/// GET of these resources.
///
/// # Errors
/// No such object, a selector that cannot be read, or another method.
pub(crate) async fn answer(ctx: &Context<'_>) -> ApiResult<Value> {
    if !VERBS.contains(&ctx.verb.as_str()) || !ctx.path.subresource.is_empty() {
        return Err(ApiError::method_not_allowed());
    }
    let backend = ctx.inner.backend.get().ok_or_else(|| ApiError::unavailable("no node is connected"))?;
    let objects = selected(ctx)?;
    let nodes: Vec<String> = {
        let name = |object: &Arc<Stored>| match ctx.resource.namespaced {
            true => object.value()["spec"]["nodeName"].as_str().unwrap_or_default().to_owned(),
            false => object.key.name.clone(),
        };
        let mut nodes: Vec<String> = objects.iter().map(name).filter(|name| !name.is_empty()).collect();
        nodes.sort();
        nodes.dedup();
        nodes
    };
    let measured: HashMap<String, Measured> = futures::stream::iter(nodes)
        .map(|node| async move {
            match ctx.inner.samples.measure(backend.as_ref(), &node).await {
                Ok(measured) => Some((node, measured)),
                Err(error) => {
                    log::debug!("no measurements of node {node}: {error}");
                    None
                }
            }
        })
        .buffer_unordered(CONCURRENCY)
        .filter_map(|found| async { found })
        .collect()
        .await;
    let items = if ctx.resource.namespaced { of_pods(&objects, &measured) } else { of_nodes(&objects, &measured) };
    if !ctx.path.name.is_empty() {
        let found = items.into_iter().next().ok_or_else(|| ApiError::not_found(&ctx.resource, &ctx.path.name))?;
        return Ok(found);
    }
    let items: Vec<Value> = items
        .into_iter()
        .map(|mut item| {
            // Items of a list say their kind on the list.
            item.as_object_mut().map(|item| (item.remove("kind"), item.remove("apiVersion")));
            item
        })
        .collect();
    Ok(json!({"kind": ctx.resource.list_kind, "apiVersion": API_VERSION, "metadata": {}, "items": items}))
}

/// The nodes or pods that are asked about.
fn selected(ctx: &Context<'_>) -> ApiResult<Vec<Arc<Stored>>> {
    let labels = LabelSelector::parse(ctx.query.text("labelSelector"))
        .map_err(|why| ApiError::bad_request(format!("unable to parse requirement: {why}")))?;
    let fields = FieldSelector::parse(ctx.query.text("fieldSelector")).map_err(ApiError::bad_request)?;
    if let Some(field) = fields.unsupported(ctx.resource.namespaced, |_, _| None) {
        return Err(ApiError::bad_request(format!("field label not supported: {field}")));
    }
    let store = ctx.store();
    let namespace = Some(ctx.path.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let mut objects = store.list(&ctx.resource.plural, namespace, None, None)?;
    let name = ctx.path.name.as_str();
    objects.retain(|object| {
        (name.is_empty() || object.key.name == name)
            && labels.matches(object.value())
            && fields.matches(object.value(), |_, _| None)
    });
    Ok(objects)
}

fn of_nodes(nodes: &[Arc<Stored>], measured: &HashMap<String, Measured>) -> Vec<Value> {
    let usage = |node: &Arc<Stored>| {
        let Measured { before, now, between } = measured.get(&node.key.name)?;
        let mut item = item("NodeMetrics", node, *between);
        item.set("usage", quantities(usage::node(before, now, *between)?));
        Some(item)
    };
    nodes.iter().filter_map(usage).collect()
}

fn of_pods(pods: &[Arc<Stored>], measured: &HashMap<String, Measured>) -> Vec<Value> {
    let mut by_node = HashMap::new();
    for (node, Measured { before, now, between }) in measured {
        by_node.insert(node.as_str(), (usage::pods(before, now, *between), *between));
    }
    let usage = |pod: &Arc<Stored>| {
        let (pods, between) = by_node.get(pod.value()["spec"]["nodeName"].as_str()?)?;
        let containers = pods.get(meta::text(pod.value(), "uid"))?;
        let containers: Vec<Value> =
            containers.iter().map(|(name, usage)| json!({"name": name, "usage": quantities(*usage)})).collect();
        let mut item = item("PodMetrics", pod, *between);
        item.set("containers", containers.into());
        Some(item)
    };
    pods.iter().filter_map(usage).collect()
}

fn item(kind: &str, object: &Stored, window: Duration) -> Value {
    let now = meta::rfc3339(Timestamp::now());
    let mut metadata = json!({"name": object.key.name, "creationTimestamp": now});
    if !object.key.namespace.is_empty() {
        metadata.set("namespace", object.key.namespace.as_str().into());
    }
    if let labels @ Value::Object(_) = &object.value()["metadata"]["labels"] {
        metadata.set("labels", labels.clone());
    }
    let window = format!("{}ms", window.as_millis());
    json!({"kind": kind, "apiVersion": API_VERSION, "metadata": metadata, "timestamp": now, "window": window})
}

fn quantities(usage: Usage) -> Value {
    let mut quantities = json!({"cpu": format!("{}n", usage.cpu)});
    if let Some(bytes) = usage.memory {
        quantities.set("memory", format!("{}Ki", bytes.div_ceil(1024)).into());
    }
    quantities
}
