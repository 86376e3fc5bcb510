//! Mirror pods: the API's copies of a node's static pods.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Failure, code, pod};
use crate::bridge::refs::names_objects;
use crate::bridge::requests::{Requests, Written};
use crate::bridge::watched::MIRROR_ANNOTATION;

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
}

impl Existing {
    fn mirrors(&self) -> Option<&str> {
        self.metadata.annotations.get(MIRROR_ANNOTATION).map(String::as_str)
    }
}

/// Makes the mirror, replacing that of an older version of the static pod.
pub(super) async fn create(requests: &Requests, node: &str, static_pod: &Value) -> Result<(), Failure> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text(&static_pod["metadata"]["namespace"]), text(&static_pod["metadata"]["name"]));
    let path = pod::path(&namespace, &name)?;
    let owner: Written = requests.get(&format!("/api/v1/nodes/{node}")).await.map_err(|error| match code(&error) {
        // The node registers at the same time: its object will be there.
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
        Some(hash) if hash == wanted => Ok(()),
        Some(_) => {
            pod::gone(requests, &namespace, &name, &existing.metadata.uid).await?;
            requests.create(&list, &mirror).await?;
            Ok(())
        }
        None => Err(Failure::Refused(format!("pod {namespace}/{name} exists and mirrors no static pod"))),
    }
}

/// Deletes the mirror of a static pod that is no more.
pub(super) async fn remove(requests: &Requests, namespace: &str, name: &str, static_uid: &str) -> Result<(), Failure> {
    let existing: Existing = match requests.get(&pod::path(namespace, name)?).await {
        // The node may read pods of its own alone: what is not there is refused like what is another's.
        Err(error) if matches!(code(&error), Some(403 | 404)) => return Ok(()),
        other => other?,
    };
    if existing.mirrors() != Some(static_uid) {
        return Ok(());
    }
    pod::gone(requests, namespace, name, &existing.metadata.uid).await
}

/// The object to create: marked as a mirror, owned by the node, without what the API fills in.
fn mirror(node: &str, node_uid: &str, static_pod: &Value) -> Result<Value, Failure> {
    // The rule of the API server's NodeRestriction admission, here, too: who is bound to an object by a pod may read it.
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
    use super::*;

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

    /// With the reference it could ask for what another node's pods name.
    #[test]
    fn g27_a_mirror_that_names_objects_of_the_api_is_refused() {
        let metadata = json!({"name": "s", "annotations": {HASH_ANNOTATION: "h"}});
        let pod = json!({"metadata": metadata, "spec": {"volumes": [{"name": "v", "secret": {"secretName": "x"}}]}});
        let refused = mirror("n", "u", &pod);
        assert!(matches!(&refused, Err(Failure::Refused(why)) if why.contains("secrets")), "{refused:?}");
    }

    #[test]
    fn a_static_pod_without_hash_is_refused() {
        assert!(mirror("n", "u", &json!({"metadata": {"name": "s"}})).is_err());
        assert!(mirror("n", "u", &json!({})).is_err());
    }
}
