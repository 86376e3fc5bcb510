//! Memory that controllers, the scheduler and the states of nodes need for the fields of an object that they keep: labels,
//! owners, and the spec without containers and templates. As values it takes up to thirty times its JSON. Pure.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::codec::parse::{FIELD_COST, OBJECT_COST, VALUE_COST};

/// Labels are kept by several.
const LABELS: usize = 3;
/// Fields of a spec of which little is kept: nodes get their JSON, controllers read them again when they need them.
const SKIPPED: [&str; 5] = ["containers", "initContainers", "ephemeralContainers", "template", "jobTemplate"];

/// Approximate memory in bytes of the kept fields of an object: a `&Value`, or a deserializer of its JSON. 0 if it is not
/// JSON.
pub(crate) fn of<'de>(object: impl Deserializer<'de>) -> usize {
    let mut bytes = 0;
    match (Counted { part: Part::Object, bytes: &mut bytes }).deserialize(object) {
        Ok(()) => bytes,
        Err(_) => 0,
    }
}

/// Where a value is in the object.
#[derive(Clone, Copy)]
enum Part {
    Object,
    Metadata,
    Spec,
    Volumes,
    /// Kept, with all that is in it, so many times.
    Kept(usize),
    Dropped,
}

impl Part {
    /// The part to which the value of a field belongs.
    fn field(self, name: &str) -> Self {
        match (self, name) {
            (Self::Object, "metadata") => Self::Metadata,
            (Self::Object, "spec") => Self::Spec,
            (Self::Object, "rules" | "subjects" | "subsets") => Self::Kept(1),
            (Self::Metadata, "labels") => Self::Kept(LABELS),
            (Self::Metadata, "ownerReferences" | "finalizers") => Self::Kept(1),
            (Self::Spec, "volumes") => Self::Volumes,
            (Self::Spec, name) if !SKIPPED.contains(&name) => Self::Kept(1),
            (Self::Volumes, "persistentVolumeClaim") => Self::Kept(1),
            (Self::Kept(times), _) => Self::Kept(times),
            _ => Self::Dropped,
        }
    }
}

/// Counts a value with all that is in it.
struct Counted<'a> {
    part: Part,
    bytes: &'a mut usize,
}

impl Counted<'_> {
    fn add(&mut self, bytes: usize) {
        if let Part::Kept(times) = self.part {
            *self.bytes = self.bytes.saturating_add(bytes.saturating_mul(times));
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
        while list.next_element_seed(Counted { part: self.part, bytes: self.bytes })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.add(OBJECT_COST);
        while let Some((part, name)) = map.next_key_seed(Name(self.part))? {
            let mut field = Counted { part, bytes: self.bytes };
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
        let bytes = of(object);
        assert_eq!(of(&mut serde_json::Deserializer::from_str(&text)), bytes, "{text}");
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
        assert!(claim(2) - claim(1) >= own);
        assert_eq!(
            both(&json!({"metadata": {"labels": {"a": "b"}}})),
            LABELS * (OBJECT_COST + 2 * FIELD_COST + VALUE_COST + "labelsab".len())
        );
        assert!(both(&json!({"rules": list(2)})) > 2 * own && both(&json!({"subsets": list(2)})) > 2 * own);
    }

    #[test]
    fn what_is_not_kept_counts_nothing() {
        let much = vec![json!({"a": [1, true, null, 0.5, -1, "x"]}); 100];
        let object = json!({
            "kind": "Pod",
            "metadata": {"name": "a", "annotations": {"a": "b"}, "managedFields": much},
            "spec": {"containers": much, "template": {"spec": much}, "volumes": [{"name": "v", "projected": {"sources": much}}]},
            "status": {"conditions": much},
            "data": {"a": much},
        });
        assert_eq!(both(&object), 0);
        assert_eq!((of(json!(["a"])), of(&mut serde_json::Deserializer::from_str("{\"spec\": {\"a\": "))), (0, 0));
    }
}
