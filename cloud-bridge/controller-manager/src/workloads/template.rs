//! Pod templates while they are used, and the pods created from them (K8s pkg/controller/controller_utils.go).

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::typed;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use super::body::{Body, Fields};
use super::digest;

/// A template of pods or Jobs as it was read.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: Arc<Fields>,
    /// The annotations of the object that has the template.
    pub(crate) owner_annotations: Option<BTreeMap<String, String>>,
    /// The templates of claims of a StatefulSet, as text.
    claims: Box<str>,
}

impl Template {
    /// Reads the template of an object; `None` if it is malformed.
    pub(crate) fn read(owner: &Value, template: &Value) -> Option<Self> {
        let metadata: Option<ObjectMeta> = typed::read(&template["metadata"]).ok()?;
        let spec = Arc::new(Fields::of(template["spec"].as_object()?));
        let owner_annotations = typed::read(&owner["metadata"]["annotations"]).ok()?;
        let claims = owner["spec"]["volumeClaimTemplates"].to_string().into();
        Some(Self { metadata: metadata.unwrap_or_default(), spec, owner_annotations, claims })
    }

    /// The templates of claims.
    pub(crate) fn claims(&self) -> Vec<Value> {
        serde_json::from_str(&self.claims).unwrap_or_default()
    }

    /// The hash in the names of its objects. `collisions`: number of name collisions.
    pub(crate) fn hash(&self, collisions: Option<i32>) -> String {
        let metadata = Some(self.metadata.clone());
        let spec = typed::read(&self.spec.value()).ok();
        digest::hash(&PodTemplateSpec { metadata, spec }, collisions)
    }
}

/// The pod of a template for its controller, which has `own` of its spec for itself. Without a name the API gives it one:
/// `prefix` and some letters.
pub(crate) fn pod(
    (name, prefix): (Option<&str>, &str),
    metadata: ObjectMeta,
    own: Value,
    shared: &Arc<Fields>,
    owner: &OwnerReference,
) -> Body {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": prefix, "ownerReferences": [owner]},
    });
    if let Some(fields) = apimachinery::json::object_mut(&mut pod, "metadata") {
        for (name, value) in [
            ("name", name.map(Value::from)),
            ("labels", metadata.labels.map(|map| json!(map))),
            ("annotations", metadata.annotations.map(|map| json!(map))),
            ("finalizers", metadata.finalizers.map(|list| json!(list))),
        ] {
            fields.extend(value.map(|value| (name.to_owned(), value)));
        }
    }
    if let Some(fields) = pod.as_object_mut() {
        fields.insert("spec".to_owned(), own);
    }
    Body::sharing(pod, &["spec"], shared)
}

/// The beginning of a name, which a part of another name may follow.
pub(crate) fn cut(name: &str, room: usize) -> &str {
    let end = name.char_indices().nth(room).map_or(name.len(), |(end, _)| end);
    name.get(..end).unwrap_or(name).trim_end_matches(['.', '-'])
}

/// The prefix of the pods' names: that of the controller, if it is not too long for one (K8s `GetPodsPrefix`).
pub(crate) fn prefix(controller: &str) -> String {
    let prefix = format!("{controller}-");
    if apimachinery::names::dns_subdomain(prefix.trim_end_matches('-')).is_empty() {
        prefix
    } else {
        controller.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> Value {
        json!({
            "metadata": {"labels": {"app": "web"}, "name": "ignored", "creationTimestamp": null},
            "spec": {"hostname": null, "containers": [{"name": "web", "image": "one"}]},
        })
    }

    #[test]
    fn hash_is_that_of_the_typed_template() {
        let read = Template::read(&Value::Null, &template()).unwrap();
        let typed: PodTemplateSpec = serde_json::from_value(template()).unwrap();
        assert_eq!(read.hash(Some(3)), digest::hash(&typed, Some(3)));
        assert!(Template::read(&Value::Null, &json!({"metadata": {}})).is_none());
        assert!(read.claims().is_empty());
        let set = json!({"spec": {"volumeClaimTemplates": [{"metadata": {"name": "a"}}]}});
        let read = Template::read(&set, &template()).unwrap();
        assert_eq!(read.claims(), [json!({"metadata": {"name": "a"}})]);
    }

    #[test]
    fn pod_of_a_template_has_no_name_unless_it_is_given_one() {
        let template = Template::read(&Value::Null, &template()).unwrap();
        let owner = OwnerReference::default();
        let made = |name| pod((name, "a-"), template.metadata.clone(), json!({}), &template.spec, &owner).value();
        assert_eq!(made(None)["metadata"]["name"], Value::Null);
        let named = made(Some("a-0"));
        assert_eq!((&named["metadata"]["name"], &named["metadata"]["generateName"]), (&json!("a-0"), &json!("a-")));
        assert_eq!(named["metadata"]["labels"], json!({"app": "web"}));
        assert_eq!(named["spec"], json!({"containers": [{"name": "web", "image": "one"}]}));
    }
}
