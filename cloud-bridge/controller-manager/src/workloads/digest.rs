//! Comparison of pod templates: a digest of each one that is not loaded, and the hash in the names of objects with a
//! template (K8s pkg/controller/controller_utils.go `ComputeHash`). Pure.

use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, Write};

use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

/// The letters of names that are made: without vowels, so that no words come out (K8s util/rand).
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Digest of a pod template, for comparisons within this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest(u64);

impl Digest {
    /// The digest of a template, which is that of all templates that differ in nothing but the label `ignored`.
    pub(crate) fn of(template: &PodTemplateSpec, ignored: Option<&str>) -> Self {
        let (no_metadata, no_spec) = (ObjectMeta::default(), PodSpec::default());
        let metadata = template.metadata.as_ref().unwrap_or(&no_metadata);
        let spec = template.spec.as_ref().unwrap_or(&no_spec);
        let labels = metadata.labels.iter().flatten();
        let labels: Vec<(&String, &String)> = labels.filter(|(name, _)| Some(name.as_str()) != ignored).collect();
        let others = ObjectMeta { labels: None, ..metadata.clone() };
        let mut hasher = DefaultHasher::new();
        write(&(labels, others, spec), &mut |bytes| hasher.write(bytes));
        Self(hasher.finish())
    }
}

/// A short text that differs for different templates, the same over restarts and versions: FNV-1a of the JSON. `collisions`: how
/// often another had the name.
pub(crate) fn hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    let mut sum = 0x811c_9dc5_u32;
    let mut add = |bytes: &[u8]| {
        sum = bytes.iter().fold(sum, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    };
    write(template, &mut add);
    if let Some(count) = collisions {
        add(&count.to_le_bytes());
    }
    safe(&sum.to_string())
}

/// Writes the JSON of a value to `take` in parts, so that it never exists as a whole.
fn write(value: &impl Serialize, take: &mut dyn FnMut(&[u8])) {
    // A sum refuses nothing, and all names in a template are texts.
    drop(serde_json::to_writer(Parts(take), value));
}

struct Parts<'a>(&'a mut dyn FnMut(&[u8]));

impl Write for Parts<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A text in letters that a name may have (K8s `SafeEncodeString`).
fn safe(text: &str) -> String {
    let letter = |byte: u8| LETTERS.get(usize::from(byte) % LETTERS.len()).copied().unwrap_or(b'x');
    text.bytes().map(|byte| char::from(letter(byte))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const LABEL: &str = "pod-template-hash";

    fn template(value: Value) -> PodTemplateSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn templates_are_the_same_whatever_their_hash() {
        let is_same = |one: Value, other: Value| {
            let digest = |value: Value| Digest::of(&template(value), Some(LABEL));
            digest(one) == digest(other)
        };
        let spec = json!({"containers": [{"name": "c"}]});
        let set = |metadata: Value| json!({"metadata": metadata, "spec": spec});
        let (wanted, labels) = (set(json!({"labels": {"a": "b"}})), json!({"a": "b", LABEL: "x"}));
        assert!(is_same(set(json!({ "labels": labels })), wanted.clone()));
        for other in [
            json!({"labels": {LABEL: "x"}}),
            json!({"labels": labels, "annotations": {"a": "b"}}),
            json!({"labels": labels, "finalizers": ["a"]}),
        ] {
            assert!(!is_same(set(other.clone()), wanted.clone()), "{other}");
        }
        assert!(is_same(json!({"metadata": null}), json!({"metadata": {"labels": {}}})));
        assert!(!is_same(json!({"metadata": {"labels": {"a": "b"}}}), wanted.clone()));
        let image = |image: &str| json!({"spec": {"containers": [{"name": "c", "image": image}]}});
        assert!(!is_same(image("one"), image("two")));
        let whole = |label: &str| Digest::of(&template(json!({"metadata": {"labels": {LABEL: label}}})), None);
        assert_ne!(whole("x"), whole("y"), "without a label that is ignored");
    }

    /// Names of existing ReplicaSets and revisions: another hash would cause another rollout.
    #[test]
    fn hash_of_a_template_stays_what_it_was() {
        let spec = json!({"containers": [{"name": "web", "image": "one"}]});
        let template = template(json!({"metadata": {"labels": {"app": "web"}}, "spec": spec}));
        for (collisions, wanted) in [(None, "58cb44d795"), (Some(0), "64bcb8fbcf"), (Some(1), "c669c6bc4")] {
            assert_eq!(hash(&template, collisions), wanted, "{collisions:?}");
        }
    }
}
