//! Pod templates: the hash that tells two apart, and the pod that is made of one (K8s pkg/controller/controller_utils.go).

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Serialize;
use serde_json::{Value, json};

/// The letters of names that are made: without vowels, so that no words come out (K8s util/rand).
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A short text that differs for different values, the same over restarts and versions: FNV-1a of its JSON.
pub(crate) fn hash(value: &impl Serialize, collisions: Option<i32>) -> String {
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.extend(collisions.unwrap_or_default().to_le_bytes().iter().filter(|_| collisions.is_some()));
    let sum = bytes.iter().fold(0x811c_9dc5_u32, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    safe(&sum.to_string())
}

/// A text in letters that a name may have (K8s `SafeEncodeString`).
fn safe(text: &str) -> String {
    let letter = |byte: u8| LETTERS.get(usize::from(byte) % LETTERS.len()).copied().unwrap_or(b'x');
    text.bytes().map(|byte| char::from(letter(byte))).collect()
}

/// The pod of a template for its controller. Its name is left to the API: `prefix` and some letters.
pub(crate) fn pod(template: &PodTemplateSpec, prefix: &str, owner: &OwnerReference) -> Value {
    let metadata = template.metadata.clone().unwrap_or_default();
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": prefix, "ownerReferences": [owner]},
        "spec": template.spec,
    });
    if let Some(fields) = apimachinery::json::object_mut(&mut pod, "metadata") {
        for (name, value) in [
            ("labels", metadata.labels.map(|map| json!(map))),
            ("annotations", metadata.annotations.map(|map| json!(map))),
            ("finalizers", metadata.finalizers.map(|list| json!(list))),
        ] {
            fields.extend(value.map(|value| (name.to_owned(), value)));
        }
    }
    pod
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
