//! `metrics.k8s.io/v1beta1`: what `kubectl top` reads, measured at the nodes when it is asked. On a cluster
//! metrics-server does this.

mod usage;

use sampan_json::SetField;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::yield_now;

use super::context::Context;
use crate::kinds::metrics::VERBS;
use crate::resource::status::{ApiError, ApiResult};
use crate::state::samples::Measured;
use crate::storage::{Most, Stored};
use apimachinery::flow::Flow;
use apimachinery::json::text;
use apimachinery::key::ObjectKey;
use apimachinery::meta;
use apimachinery::selector::{FieldSelector, LabelSelector};
use apimachinery::shares::Share;
use usage::Usage;

const API_VERSION: &str = "metrics.k8s.io/v1beta1";
/// Nodes asked at the same time.
const CONCURRENCY: usize = 16;
/// Objects that are read at a time, and bytes of them.
const PAGE: Most = Most { items: 100, bytes: 64 << 10 };

/// GET of these resources. Data that is kept while nodes are asked counts for `flow`.
///
/// # Errors
/// The object does not exist, the selector is invalid, the method is not supported, or this client's limit is used up.
pub(crate) async fn answer(ctx: &Context<'_>, flow: &Flow) -> ApiResult<Value> {
    if !VERBS.contains(&ctx.verb.as_str()) || !ctx.path.subresource.is_empty() {
        return Err(ApiError::method_not_allowed());
    }
    let backend = ctx.inner.backend.get().ok_or_else(|| ApiError::unavailable("no node is connected"))?;
    let (objects, _kept) = selected(ctx, flow).await?;
    let nodes: BTreeSet<String> =
        objects.iter().map(|object| object.node.clone()).filter(|name| !name.is_empty()).collect();
    let of_pods = ctx.resource.namespaced;
    let measured: HashMap<String, OfNode> = futures::stream::iter(nodes)
        .map(|node| async move {
            match ctx.inner.samples.measure(backend.as_ref(), &node).await {
                Ok(measured) => Some((node, OfNode::new(&measured, of_pods))),
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
    let items = objects.iter().filter_map(|object| {
        let found = measured.get(&object.node)?;
        if of_pods { found.of_pod(object) } else { found.of_node(object) }
    });
    let mut items: Vec<Value> = items.collect();
    if !ctx.path.name.is_empty() {
        return items.pop().ok_or_else(|| ApiError::not_found(&ctx.resource, &ctx.path.name));
    }
    for item in &mut items {
        // Items of a list have their kind on the list.
        item.as_object_mut().map(|item| (item.remove("kind"), item.remove("apiVersion")));
    }
    Ok(json!({"kind": ctx.resource.list_kind, "apiVersion": API_VERSION, "metadata": {}, "items": items}))
}

/// A requested node or pod, with the data that is kept while nodes are asked.
struct Object {
    key: ObjectKey,
    uid: String,
    node: String,
    labels: Value,
}

impl Object {
    fn new(stored: &Stored, of_pods: bool) -> Self {
        let value = stored.value();
        let node = if of_pods { text(&value["spec"], "nodeName") } else { stored.key.name.as_str() };
        Self {
            key: stored.key.clone(),
            uid: meta::text(value, "uid").to_owned(),
            node: node.to_owned(),
            labels: value["metadata"]["labels"].clone(),
        }
    }

    /// Size of its data and its answer, in bytes, approximately.
    fn cost(&self) -> usize {
        const OBJECT: usize = 512;
        const LABEL: usize = 128;
        let labels = self.labels.as_object().into_iter().flatten();
        labels.map(|(key, value)| LABEL + key.len() + value.as_str().map_or(0, str::len)).sum::<usize>() + OBJECT
    }
}

/// The nodes or pods that are asked about, some at a time, and the share that they count for.
async fn selected(ctx: &Context<'_>, flow: &Flow) -> ApiResult<(Vec<Object>, Option<Share>)> {
    let labels = LabelSelector::parse(ctx.query.text("labelSelector"))
        .map_err(|why| ApiError::bad_request(format!("unable to parse requirement: {why}")))?;
    let fields = FieldSelector::parse(ctx.query.text("fieldSelector")).map_err(ApiError::bad_request)?;
    if let Some(field) = fields.unsupported(ctx.resource.namespaced, |_, _| None) {
        return Err(ApiError::bad_request(format!("field label not supported: {field}")));
    }
    let of_pods = ctx.resource.namespaced;
    let matches = |stored: &Stored| {
        let object = stored.head();
        labels.matches(object) && fields.matches(object, |_, _| None)
    };
    if !ctx.path.name.is_empty() {
        let found = ctx.store().get(&ctx.resource.plural, &ctx.key())?.filter(|stored| matches(stored));
        return Ok((found.iter().map(|stored| Object::new(stored, of_pods)).collect(), None));
    }
    let namespace = Some(ctx.path.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let (mut objects, mut kept, mut after) = (Vec::new(), None::<Share>, None);
    loop {
        yield_now().await;
        let _step = ctx.inner.limits.steps.next(flow).await;
        let page = {
            let store = ctx.store();
            store.list_at(&ctx.resource.plural, namespace, store.revision(), after.as_ref(), PAGE, &matches)?
        };
        let before = objects.len();
        objects.extend(page.items.iter().map(|stored| Object::new(stored, of_pods)));
        let cost: usize = objects.iter().skip(before).map(Object::cost).sum();
        let room = if let Some(kept) = &mut kept {
            kept.grow(cost)
        } else {
            kept = ctx.inner.limits.answers.take(flow, cost);
            kept.is_some()
        };
        if !room {
            return Err(ApiError::busy());
        }
        let Some(next) = page.next else { return Ok((objects, kept)) };
        after = Some(next);
    }
}

/// Usage on a node; the measurements, which are large, are not kept.
struct OfNode {
    between: Duration,
    node: Option<Usage>,
    pods: HashMap<String, usage::PodUsage>,
}

impl OfNode {
    fn new(Measured { before, now, between }: &Measured, of_pods: bool) -> Self {
        let (mut node, mut pods) = (None, HashMap::new());
        match of_pods {
            true => pods = usage::pods(before, now, *between),
            false => node = usage::node(before, now, *between),
        }
        Self { between: *between, node, pods }
    }

    fn of_node(&self, object: &Object) -> Option<Value> {
        let mut item = item("NodeMetrics", object, self.between);
        item.set("usage", quantities(self.node?));
        Some(item)
    }

    fn of_pod(&self, object: &Object) -> Option<Value> {
        let containers = self.pods.get(&object.uid)?;
        let containers: Vec<Value> =
            containers.iter().map(|(name, usage)| json!({"name": name, "usage": quantities(*usage)})).collect();
        let mut item = item("PodMetrics", object, self.between);
        item.set("containers", containers.into());
        Some(item)
    }
}

fn item(kind: &str, object: &Object, window: Duration) -> Value {
    let now = meta::rfc3339(Timestamp::now());
    let mut metadata = json!({"name": object.key.name, "creationTimestamp": now});
    if !object.key.namespace.is_empty() {
        metadata.set("namespace", object.key.namespace.as_str().into());
    }
    if let labels @ Value::Object(_) = &object.labels {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_told_of_a_pod_is_kept() {
        let containers = json!([{"name": "c", "image": "x".repeat(100_000)}]);
        let pod = json!({"metadata": {"name": "p", "namespace": "a", "uid": "u", "labels": {"k": "v"}},
            "spec": {"nodeName": "n", "containers": containers}});
        let stored = Stored::new(ObjectKey::of(&pod), 1, serde_json::to_vec(&pod).unwrap());
        let object = Object::new(&stored, true);
        let known = (object.node.as_str(), object.uid.as_str(), &object.labels);
        assert_eq!(known, ("n", "u", &json!({"k": "v"})));
        assert!(object.cost() < 1000, "{}", object.cost());
        assert_eq!(Object::new(&stored, false).node, "p");
    }
}
