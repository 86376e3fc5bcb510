//! Mirror pods: the API's copies of a node's static pods.

use std::collections::HashSet;
use std::sync::{MutexGuard, PoisonError};

use edge_protocol::message::ObjectKey;
use serde::Deserialize;
use serde_json::{Value, json};

use super::failure::Failure;
use super::{Reports, pod};
use crate::bridge::pod_references::names_objects;
use crate::bridge::requests::{Requests, Written, code};
use apimachinery::well_known::MIRROR_ANNOTATION;

/// The annotation by which a kubelet knows a static pod; its value is the static pod's uid.
const HASH_ANNOTATION: &str = "kubernetes.io/config.hash";

#[derive(Debug, Deserialize)]
struct Existing {
    metadata: ExistingMeta,
}

#[derive(Debug, Deserialize)]
struct ExistingMeta {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
    #[serde(default, rename = "deletionTimestamp")]
    deleted: Option<String>,
}

impl Existing {
    fn mirrors(&self) -> Option<&str> {
        self.metadata.annotations.get(MIRROR_ANNOTATION).map(String::as_str)
    }
}

/// Maximum number of pods of one node, mirrors included, up to which mirrors are created: otherwise a node could report
/// any number. A node runs no more containers than this (`MAX_CONTAINERS` of its monitor).
const MOST_PODS: usize = 1024;

impl Reports {
    /// Creates the mirror of a static pod, unless the node has too many pods.
    pub(super) async fn mirror(&self, static_pod: &Value) -> Result<(), Failure> {
        let text = |field: &str| static_pod["metadata"][field].as_str().unwrap_or_default();
        let name = place(text("namespace"), text("name"));
        if !self.mirror_namespaces.is_empty() && !self.mirror_namespaces.iter().any(|one| one == text("namespace")) {
            let why = "no mirror is made: --mirror-namespace of the bridge does not name this namespace";
            return Err(Failure::Refused(format!("static pod {name}: {why}")));
        }
        {
            let key = ObjectKey { kind: "Pod".into(), namespace: text("namespace").into(), name: text("name").into() };
            let state = self.node.state();
            let mut made = self.mirrors();
            let known = state.holds(&key) || made.contains(&name);
            if !known && state.count("Pod").max(made.len()) >= MOST_PODS {
                return Err(Failure::Refused(format!("the node has {MOST_PODS} pods and more: no mirror is made")));
            }
            made.insert(name.clone());
        }
        let created = create(&self.requests, &self.node.name, static_pod).await;
        if matches!(created, Err(Failure::Refused(_))) {
            self.mirrors().remove(&name);
        }
        created
    }

    pub(super) async fn mirror_gone(&self, namespace: &str, name: &str, static_uid: &str) -> Result<(), Failure> {
        remove(&self.requests, namespace, name, static_uid).await?;
        self.mirrors().remove(&place(namespace, name));
        Ok(())
    }

    pub(super) fn mirrors(&self) -> MutexGuard<'_, HashSet<String>> {
        self.mirrors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn place(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// Creates the mirror, and replaces that of an older version of the static pod.
async fn create(requests: &Requests, node: &str, static_pod: &Value) -> Result<(), Failure> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text(&static_pod["metadata"]["namespace"]), text(&static_pod["metadata"]["name"]));
    let path = pod::path(&namespace, &name)?;
    let owner: Written = requests.get(&format!("/api/v1/nodes/{node}")).await.map_err(|error| match code(&error) {
        // The node is registering at the same time, so its object will exist.
        Some(404) => Failure::Api(kube::Error::Service("the node is not registered yet".into())),
        _ => Failure::Api(error),
    })?;
    let mirror = mirror(node, &owner.metadata.uid, static_pod)?;
    let wanted = text(&mirror["metadata"]["annotations"][MIRROR_ANNOTATION]);
    let list = format!("/api/v1/namespaces/{namespace}/pods");
    match requests.create(&list, &mirror).await {
        Err(error) if code(&error) == Some(409) => {}
        other => return Ok(other.map(drop)?),
    }
    let existing: Existing = requests.get(&path).await?;
    match existing.mirrors() {
        Some(hash) if hash == wanted && existing.metadata.deleted.is_none() => Ok(()),
        // The mirror of an older version, or one that is being deleted.
        Some(_) => {
            pod::gone(requests, &namespace, &name, &existing.metadata.uid).await?;
            requests.create(&list, &mirror).await?;
            Ok(())
        }
        None => Err(Failure::Refused(format!("pod {namespace}/{name} exists and mirrors no static pod"))),
    }
}

/// Deletes the mirror of a static pod that was removed.
async fn remove(requests: &Requests, namespace: &str, name: &str, static_uid: &str) -> Result<(), Failure> {
    let existing: Existing = match requests.get(&pod::path(namespace, name)?).await {
        // The node may read only its own pods: a missing pod is refused like that of another node.
        Err(error) if matches!(code(&error), Some(403 | 404)) => return Ok(()),
        other => other?,
    };
    if existing.mirrors() != Some(static_uid) {
        return Ok(());
    }
    pod::gone(requests, namespace, name, &existing.metadata.uid).await
}

/// Returns the object to create: marked as a mirror, owned by the node, without what the API fills in.
fn mirror(node: &str, node_uid: &str, static_pod: &Value) -> Result<Value, Failure> {
    // As in the NodeRestriction admission of the API server: a node may read the objects that its pods name.
    if let Some(resource) = names_objects(&static_pod["spec"]) {
        return Err(Failure::Refused(format!("a mirror pod may not reference {resource}")));
    }
    let mut pod = static_pod.clone();
    let metadata = pod.get_mut("metadata").and_then(Value::as_object_mut);
    let metadata = metadata.ok_or_else(|| Failure::Refused("no metadata".to_owned()))?;
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        metadata.remove(field);
    }
    let hash = static_pod["metadata"]["annotations"][HASH_ANNOTATION].clone();
    let marked = static_pod["metadata"]["annotations"][MIRROR_ANNOTATION].is_string();
    if !marked {
        let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut).filter(|_| hash.is_string());
        let annotations = annotations
            .ok_or_else(|| Failure::Refused(format!("a static pod must have the annotation {HASH_ANNOTATION}")))?;
        annotations.insert(MIRROR_ANNOTATION.to_owned(), hash);
    }
    metadata.insert(
        "ownerReferences".to_owned(),
        json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": true}]),
    );
    let spec = pod.get_mut("spec").and_then(Value::as_object_mut);
    let spec = spec.ok_or_else(|| Failure::Refused("a static pod must have a spec".to_owned()))?;
    spec.insert("nodeName".to_owned(), node.into());
    if let Some(fields) = pod.as_object_mut() {
        fields.insert("apiVersion".to_owned(), "v1".into());
        fields.insert("kind".to_owned(), "Pod".into());
        fields.remove("status");
    }
    Ok(pod)
}

#[cfg(test)]
mod tests;
