//! Reads the JSON of an object without `metadata.managedFields`: parsing those takes about as long as parsing the rest of
//! a pod, and controllers do not use them.

use std::cell::Cell;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// An object, and the length of its JSON in bytes, both without `managedFields`.
pub(crate) type Measured = (Value, usize);

/// Reads an object.
///
/// # Errors
/// The text is not JSON.
pub(crate) fn read(text: &str) -> serde_json::Result<Measured> {
    let managers = Cell::new(0);
    let object = Object { is_metadata: false, managers: &managers };
    match object.deserialize(&mut serde_json::Deserializer::from_str(text)) {
        Ok(object) => Ok((object, text.len().saturating_sub(managers.get()))),
        // Its type refuses what is not an object.
        Err(_) => Ok((serde_json::from_str(text)?, text.len())),
    }
}

/// Reads an object or its metadata.
struct Object<'a> {
    is_metadata: bool,
    /// Length of the skipped JSON in bytes.
    managers: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let value = match (self.is_metadata, name.as_str()) {
                (false, "metadata") => fields.next_value_seed(Object { is_metadata: true, managers: self.managers })?,
                (true, "managedFields") => {
                    let skipped = fields.next_value::<&RawValue>()?.get().len();
                    self.managers.set(self.managers.get().saturating_add(skipped));
                    continue;
                }
                _ => fields.next_value()?,
            };
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn managers_of_fields_are_skipped_unread() {
        // A number that no value can hold.
        let text = r#"{"metadata":{"name":"a","managedFields":[1e999],"uid":"u"},"spec":{"managedFields":[1]}}"#;
        let object = json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"managedFields": [1]}});
        assert_eq!(read(text).unwrap(), (object, text.len() - "[1e999]".len()));
    }

    #[test]
    fn other_json_is_read_as_it_is() {
        for text in ["1", "[]", "{}", r#"{"metadata":[{"managedFields":1}]}"#, r#"{"metadata":null}"#] {
            assert_eq!(read(text).unwrap(), (serde_json::from_str(text).unwrap(), text.len()), "{text}");
        }
        assert!(read("{").is_err());
    }
}
