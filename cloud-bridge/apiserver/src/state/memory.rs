//! Memory that controllers, the scheduler and the states of nodes need for the fields of an object that they keep: labels,
//! annotations, owners, and the spec, of containers and templates only a part. As values it takes up to thirty times its
//! JSON. Pure.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::codec::parse::{FIELD_COST, OBJECT_COST, VALUE_COST};

/// Weights, in eighths of a value. Most of what is kept is one value.
const VALUE: usize = 8;
/// Labels of pods have an index and several keepers.
const POD_LABELS: usize = 6 * VALUE;
/// Those of other objects, and of templates, have two keepers at most.
const LABELS: usize = 2 * VALUE;
/// A claim that a pod uses is found from both.
const CLAIMS: usize = 3 * VALUE;
/// Each of these short texts becomes a requirement of its own.
const LABEL_KEYS: usize = 26 * VALUE;
/// What has a type of its own is small.
const TYPED: usize = 2;
const ADDRESSES: usize = 3;
/// Containers of a pod. Nodes get their JSON.
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// What is kept of an object's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Metadata {
    Pod,
    /// No annotations: a controller needs few of them.
    Workload,
    Whole,
}

/// Approximate memory in bytes of the kept fields of an object: a `&Value`, or a deserializer of its JSON. 0 if it is not
/// JSON.
pub(crate) fn of<'de>(object: impl Deserializer<'de>, metadata: Metadata) -> usize {
    let mut eighths = 0;
    match (Counted { part: Part::Object(metadata), eighths: &mut eighths }).deserialize(object) {
        Ok(()) => eighths / VALUE,
        Err(_) => 0,
    }
}

/// Where a value is in the object.
#[derive(Clone, Copy)]
enum Part {
    Object(Metadata),
    Metadata(Metadata),
    Spec,
    Volumes,
    Containers,
    Template,
    /// The spec of a template, which is read again when pods are made. Controllers of DaemonSets keep its wishes.
    TemplateSpec,
    /// Kept with this weight, with all that is in it.
    Kept(usize),
    Dropped,
}

impl Part {
    /// The part to which the value of a field belongs.
    fn field(self, name: &str) -> Self {
        match (self, name) {
            (Self::Object(metadata), "metadata") => Self::Metadata(metadata),
            (Self::Object(_), "spec") => Self::Spec,
            (Self::Object(_), "rules" | "subjects") => Self::Kept(VALUE),
            (Self::Object(_), "subsets") => Self::Kept(ADDRESSES),
            (Self::Metadata(Metadata::Pod), "labels") => Self::Kept(POD_LABELS),
            (Self::Metadata(_), "labels") => Self::Kept(LABELS),
            (Self::Metadata(Metadata::Whole), "annotations") => Self::Kept(VALUE),
            (Self::Metadata(_), "ownerReferences" | "finalizers") => Self::Kept(VALUE),
            (Self::Spec, "volumes") => Self::Volumes,
            (Self::Spec, "template") => Self::Template,
            (Self::Spec, "jobTemplate" | "volumeClaimTemplates") => Self::Dropped,
            (Self::Spec, name) if CONTAINERS.contains(&name) => Self::Containers,
            (Self::Spec, _) => Self::Kept(VALUE),
            (Self::Template, "metadata") => Self::Metadata(Metadata::Workload),
            (Self::Template, "spec") => Self::TemplateSpec,
            (Self::TemplateSpec, "tolerations" | "affinity" | "nodeSelector") => Self::Kept(TYPED),
            (Self::Volumes, "persistentVolumeClaim") => Self::Kept(CLAIMS),
            (Self::Containers, "ports" | "resources") => Self::Kept(TYPED),
            (Self::Kept(VALUE), "matchLabelKeys" | "mismatchLabelKeys") => Self::Kept(LABEL_KEYS),
            (Self::Kept(weight), _) => Self::Kept(weight),
            _ => Self::Dropped,
        }
    }
}

/// Counts a value with all that is in it.
struct Counted<'a> {
    part: Part,
    eighths: &'a mut usize,
}

impl Counted<'_> {
    fn add(&mut self, bytes: usize) {
        if let Part::Kept(weight) = self.part {
            *self.eighths = self.eighths.saturating_add(bytes.saturating_mul(weight));
        }
    }
}

impl<'de> DeserializeSeed<'de> for Counted<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.part {
            Part::Dropped => deserializer.deserialize_ignored_any(IgnoredAny).map(drop),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Counted<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(mut self) -> Result<(), E> {
        self.add(VALUE_COST);
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_str<E: Error>(mut self, text: &str) -> Result<(), E> {
        self.add(VALUE_COST + text.len());
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        self.add(VALUE_COST);
        while list.next_element_seed(Counted { part: self.part, eighths: self.eighths })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.add(OBJECT_COST);
        while let Some((part, name)) = map.next_key_seed(Name(self.part))? {
            let mut field = Counted { part, eighths: self.eighths };
            field.add(FIELD_COST + name);
            map.next_value_seed(field)?;
        }
        Ok(())
    }
}

/// Reads the name of a field of this part: the part of its value, and its length.
struct Name(Part);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = (Part, usize);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(Part, usize), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = (Part, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<(Part, usize), E> {
        Ok((self.0.field(name), name.len()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn both(object: &Value) -> usize {
        let text = object.to_string();
        let bytes = of(object, Metadata::Whole);
        assert_eq!(of(&mut serde_json::Deserializer::from_str(&text), Metadata::Whole), bytes, "{text}");
        bytes
    }

    #[test]
    fn kept_fields_count_with_all_that_is_in_them() {
        let requirement = json!({"key": "a", "operator": "Exists"});
        let own =
            OBJECT_COST + 2 * (FIELD_COST + VALUE_COST) + "key".len() + "a".len() + "operator".len() + "Exists".len();
        let list = |count: usize| vec![requirement.clone(); count];
        let selector = |count: usize| both(&json!({"spec": {"selector": {"matchExpressions": list(count)}}}));
        assert_eq!(selector(1_500) - selector(500), 1_000 * own);
        let terms = |count: usize| both(&json!({"spec": {"affinity": {"nodeAffinity": {"a": list(count)}}}}));
        assert_eq!(terms(2) - terms(1), own);
        let claim = |count: usize| {
            both(&json!({"spec": {"volumes": vec![json!({"name": "v", "persistentVolumeClaim": requirement}); count]}}))
        };
        assert!(claim(2) - claim(1) >= 3 * own);
        let affinity = |keys: usize| both(&json!({"spec": {"affinity": {"matchLabelKeys": vec!["a"; keys]}}}));
        assert_eq!(affinity(2) - affinity(1), 26 * (VALUE_COST + 1), "each becomes a requirement");
        let ports = |count: usize| both(&json!({"spec": {"containers": [{"ports": list(count)}]}}));
        assert_eq!(ports(5) - ports(1), own);
        let labels = |of: &Value| both(&json!({"spec": {"template": {"metadata": {"labels": of}}}}));
        assert_eq!(labels(&json!({"a": "b"})) - labels(&json!({})), 2 * (FIELD_COST + VALUE_COST + 2));
        let wishes = |count: usize| both(&json!({"spec": {"template": {"spec": {"tolerations": list(count)}}}}));
        assert_eq!(wishes(5) - wishes(1), own);
        let noted = json!({"metadata": {"annotations": {"a": "b"}}});
        assert_eq!(
            (both(&noted), of(&noted, Metadata::Pod), of(&noted, Metadata::Workload)),
            (OBJECT_COST + 2 * FIELD_COST + VALUE_COST + "annotationsab".len(), 0, 0)
        );
        let labelled = json!({"metadata": {"labels": {"a": "b"}}});
        let label = OBJECT_COST + 2 * FIELD_COST + VALUE_COST + "labelsab".len();
        assert_eq!((both(&labelled), of(&labelled, Metadata::Pod)), (2 * label, 6 * label));
        assert!(both(&json!({"rules": list(2)})) > 2 * own && both(&json!({"subsets": list(2)})) > own / 2);
    }

    #[test]
    fn what_is_not_kept_counts_nothing() {
        let much = vec![json!({"a": [1, true, null, 0.5, -1, "x"]}); 100];
        let object = json!({
            "kind": "Pod",
            "metadata": {"name": "a", "managedFields": much},
            "spec": {"containers": much, "template": {"spec": {"containers": much}}, "jobTemplate": {"a": much}, "volumeClaimTemplates": much, "volumes": [{"name": "v", "projected": {"sources": much}}]},
            "status": {"conditions": much},
            "data": {"a": much},
        });
        assert_eq!(both(&object), 0);
        assert_eq!(
            (
                of(json!(["a"]), Metadata::Whole),
                of(&mut serde_json::Deserializer::from_str("{\"spec\": {\"a\": "), Metadata::Whole)
            ),
            (0, 0)
        );
    }
}
