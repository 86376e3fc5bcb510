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
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::bridge::node::Node;

    #[test]
    fn a_mirror_is_marked_and_owned_by_the_node() {
        let pod = json!({"metadata": {"name": "s-edge-1", "namespace": "default", "uid": "static",
                                      "annotations": {HASH_ANNOTATION: "static"}},
                         "spec": {"containers": []}, "status": {"phase": "Running"}});
        let mirror = mirror("edge-1", "node-uid", &pod).unwrap();
        assert_eq!(mirror["metadata"]["annotations"][MIRROR_ANNOTATION], "static");
        assert_eq!(mirror["metadata"]["ownerReferences"][0]["uid"], "node-uid");
        assert_eq!(mirror["spec"]["nodeName"], "edge-1");
        assert_eq!((mirror.get("status"), mirror["metadata"].get("uid")), (None, None));
    }

    #[test]
    fn what_is_no_pod_is_refused() {
        let metadata = json!({"name": "s", "annotations": {HASH_ANNOTATION: "h"}});
        for spec in [json!([]), json!(1), json!("x"), Value::Null] {
            let pod = json!({"metadata": metadata, "spec": spec});
            assert!(matches!(mirror("n", "u", &pod), Err(Failure::Refused(_))), "{pod}");
        }
        for odd in [json!([]), json!(1), json!({"metadata": []}), json!({"metadata": {"annotations": [1]}, "spec": {}})]
        {
            assert!(matches!(mirror("n", "u", &odd), Err(Failure::Refused(_))), "{odd}");
        }
    }

    /// With the reference, the node could read what pods of other nodes name.
    #[test]
    fn g27_a_mirror_that_names_objects_of_the_api_is_refused() {
        let metadata = json!({"name": "s", "annotations": {HASH_ANNOTATION: "h"}});
        let pod = json!({"metadata": metadata, "spec": {"volumes": [{"name": "v", "secret": {"secretName": "x"}}]}});
        let refused = mirror("n", "u", &pod);
        assert!(matches!(&refused, Err(Failure::Refused(why)) if why.contains("secrets")), "{refused:?}");
    }

    /// Reports of a node to an API that accepts everything.
    fn reports(node: Arc<Node>) -> Reports {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            let object = r#"{"metadata": {"name": "n", "uid": "u"}}"#;
            Ok::<_, kube::Error>(http::Response::new(http_body_util::Full::new(bytes::Bytes::from(object))))
        });
        let client = kube::Client::new(service, "default");
        let (requests, own) = (Requests::new(client.clone()), Requests::new(client));
        Reports::new(node, 1, requests, own, crate::bridge::reports::NodeOverrides::default())
    }

    fn static_pod(namespace: &str, name: &str) -> Value {
        let metadata = json!({"name": name, "namespace": namespace, "annotations": {HASH_ANNOTATION: "h"}});
        json!({"metadata": metadata, "spec": {"containers": []}})
    }

    #[tokio::test]
    async fn mirrors_are_made_in_the_named_namespaces_alone() {
        let mut named = reports(Arc::new(Node::new("edge-1", "stream".into())));
        named.mirror(&static_pod("prod", "anywhere")).await.unwrap();
        named.mirror_namespaces = Arc::new(["static".to_owned(), "kube-system".to_owned()]);
        for namespace in ["static", "kube-system"] {
            named.mirror(&static_pod(namespace, "s")).await.unwrap();
        }
        for namespace in ["prod", "", "stati", "static/x"] {
            let refused = named.mirror(&static_pod(namespace, "s")).await;
            assert!(
                matches!(&refused, Err(Failure::Refused(why)) if why.contains("--mirror-namespace")),
                "{refused:?}"
            );
        }
    }

    /// The limit includes the mirrors that the node has and those that the watch does not show yet.
    #[tokio::test]
    async fn g27_a_node_with_too_many_pods_makes_no_more_mirrors() {
        let mirror = |number: usize| static_pod("default", &format!("s{number}"));
        let fresh = reports(Arc::new(Node::new("edge-1", "stream".into())));
        for number in 0..MOST_PODS {
            fresh.mirror(&mirror(number)).await.unwrap();
        }
        assert!(matches!(fresh.mirror(&mirror(MOST_PODS)).await, Err(Failure::Refused(why)) if why.contains("1024")));
        fresh.mirror(&mirror(7)).await.unwrap();

        let crowded = Arc::new(Node::new("edge-2", "stream".into()));
        for number in 0..MOST_PODS {
            let key = ObjectKey { kind: "Pod".into(), namespace: "default".into(), name: format!("p{number}") };
            let digest = edge_protocol::message::ObjectDigest { key, uid: "u".into(), digest: "d".into() };
            crowded.state().set(edge_protocol::message::Object { digest, body: json!({}) }).unwrap();
        }
        let crowded = reports(crowded);
        assert!(matches!(crowded.mirror(&mirror(0)).await, Err(Failure::Refused(_))));
    }

    #[test]
    fn a_static_pod_without_hash_is_refused() {
        assert!(mirror("n", "u", &json!({"metadata": {"name": "s"}})).is_err());
        assert!(mirror("n", "u", &json!({})).is_err());
    }
}
