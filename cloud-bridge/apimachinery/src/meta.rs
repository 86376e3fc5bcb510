//! ObjectMeta: fields that the server sets, fields that clients may not set, and the validation for every kind.

use jiff::{Timestamp, Unit};
use ring::rand::{SecureRandom, SystemRandom};
use sampan_json::SetField;
use serde_json::{Map, Value, json};

/// The finalizer of a foreground deletion.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of a deletion that orphans dependents.
pub const ORPHAN: &str = "orphan";

/// A text field of the metadata, or `""`.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The finalizers.
pub fn finalizers(object: &Value) -> Vec<String> {
    let list = object["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter_map(|f| f.as_str()).map(str::to_owned).collect()
}

/// Replaces the finalizers.
pub fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    set(object, "finalizers", if finalizers.is_empty() { Value::Null } else { json!(finalizers) });
}

/// Sets a metadata field, or removes it with null.
pub fn set(object: &mut Value, field: &str, value: Value) {
    if !object["metadata"].is_object() {
        object.set("metadata", json!({}));
    }
    if let Some(map) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        if value.is_null() {
            map.remove(field);
        } else {
            map.insert(field.to_owned(), value);
        }
    }
}

/// Whether the object is being deleted.
pub fn deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The grace period of a deletion under way.
pub fn grace(object: &Value) -> Option<i64> {
    object["metadata"]["deletionGracePeriodSeconds"].as_i64()
}

/// A time as the API writes it: RFC 3339 in whole seconds.
pub fn rfc3339(time: Timestamp) -> String {
    time.round(Unit::Second)
        .ok()
        .filter(|rounded| *rounded <= time)
        .or_else(|| Timestamp::from_second(time.as_second()).ok())
        .unwrap_or(time)
        .to_string()
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The system's generator does not fail once the kernel has booted; zeroes would only collide and be refused.
    let _ = SystemRandom::new().fill(&mut bytes);
    bytes
}

/// A random number that need not be secret.
pub fn random_number() -> u32 {
    u32::from_ne_bytes(random::<4>())
}

/// A random UUID.
pub fn new_uid() -> String {
    let mut b = random::<16>();
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    let hex: String = b.iter().map(|x| format!("{x:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// A name from `generateName`: at most 58 characters of it and five random ones.
pub fn generate_name(base: &str) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let base: String = base.chars().take(58).collect();
    let suffix: String = random::<5>().iter().map(|b| char::from(ALPHABET[usize::from(*b) % ALPHABET.len()])).collect();
    base + &suffix
}

/// Fields that the server sets on every new object.
pub fn fill_new(object: &mut Value, now: Timestamp) {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion", "generation"] {
        set(object, field, Value::Null);
    }
    set(object, "creationTimestamp", rfc3339(now).into());
    set(object, "uid", new_uid().into());
}

/// A copy without its managedFields, which can be most of an object.
pub fn without_owners(object: &Value) -> Value {
    part_without_owners(object, |_| true)
}

/// A copy of the wanted fields, without managedFields.
pub fn part_without_owners(object: &Value, wanted: impl Fn(&str) -> bool) -> Value {
    let Some(fields) = object.as_object() else { return object.clone() };
    let kept = |(name, value): (&String, &Value)| match value.as_object().filter(|_| name == "metadata") {
        Some(metadata) => {
            (name.clone(), unowned(metadata).map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        None => (name.clone(), value.clone()),
    };
    fields.iter().filter(|(name, _)| wanted(name)).map(kept).collect()
}

/// Whether two objects are the same but for their managedFields.
pub fn same_but_owners(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return one == other };
    let same = |(name, value): (&String, &Value)| {
        other.get(name).is_some_and(|other| match (value.as_object(), other.as_object()) {
            (Some(one), Some(other)) if name == "metadata" => {
                unowned(one).count() == unowned(other).count()
                    && unowned(one).all(|(name, value)| other.get(name) == Some(value))
            }
            _ => value == other,
        })
    };
    one.len() == other.len() && one.iter().all(same)
}

fn unowned(metadata: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    metadata.iter().filter(|(name, _)| *name != "managedFields")
}

/// What an update may not change silently is put back from the old object.
pub fn keep_old(new: &mut Value, old: &Value) {
    for field in ["creationTimestamp", "selfLink"] {
        set(new, field, old["metadata"][field].clone());
    }
    if text(new, "uid").is_empty() {
        set(new, "uid", old["metadata"]["uid"].clone());
    }
    if deleting(old) {
        set(new, "deletionTimestamp", old["metadata"]["deletionTimestamp"].clone());
    }
    if grace(old).is_some() && grace(new).is_none() {
        set(new, "deletionGracePeriodSeconds", old["metadata"]["deletionGracePeriodSeconds"].clone());
    }
    if text(new, "namespace").is_empty() {
        set(new, "namespace", old["metadata"]["namespace"].clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_without_owners_is_the_same_but_for_them() {
        let object =
            json!({"metadata": {"name": "a", "managedFields": [{"manager": "m"}]}, "spec": {"managedFields": 1}});
        let copy = without_owners(&object);
        assert_eq!(copy, json!({"metadata": {"name": "a"}, "spec": {"managedFields": 1}}));
        assert_eq!(part_without_owners(&object, |name| name != "spec"), json!({"metadata": {"name": "a"}}));
        assert!(same_but_owners(&object, &copy) && same_but_owners(&copy, &object));
        for other in [
            json!({"metadata": {"name": "b"}, "spec": {"managedFields": 1}}),
            json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"managedFields": 1}}),
            json!({"metadata": {}, "spec": {"managedFields": 1}}),
            json!({"metadata": {"name": "a"}, "spec": {}}),
            json!({"metadata": {"name": "a"}}),
            json!(null),
        ] {
            assert!(!same_but_owners(&object, &other) && !same_but_owners(&other, &object), "{other}");
        }
    }

    #[test]
    fn names_are_generated() {
        let name = generate_name(&"x".repeat(70));
        assert_eq!(name.len(), 63);
        assert_ne!(generate_name("a-"), generate_name("a-"));
        assert_eq!(new_uid().len(), 36);
    }

    #[test]
    fn times_have_whole_seconds() {
        let time: Timestamp = "2026-01-02T03:04:05.9Z".parse().unwrap();
        assert_eq!(rfc3339(time), "2026-01-02T03:04:05Z");
    }
}
