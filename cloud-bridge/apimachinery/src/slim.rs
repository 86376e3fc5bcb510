//! Objects of which only a part is read. Independent of kinds and clients, which the users of this module define.
//!
//! `metadata.managedFields` are skipped while the JSON is read: parsing those takes about as long as parsing the rest of
//! a pod, and watches do not use them.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// An object, and the length of its JSON in bytes, both without `managedFields`.
pub type Measured = (Value, usize);

/// Reads an object without `managedFields`.
///
/// # Errors
/// The text is not JSON.
pub fn measured(text: &str) -> serde_json::Result<Measured> {
    let skipped = Cell::new(0);
    match Object(&skipped).deserialize(&mut serde_json::Deserializer::from_str(text)) {
        Ok(object) => Ok((object, text.len().saturating_sub(skipped.get()))),
        // Its type refuses what is not an object.
        Err(_) => Ok((serde_json::from_str(text)?, text.len())),
    }
}

/// Reads metadata without `managedFields`, as `deserialize_with` of a field.
///
/// # Errors
/// The value is not an object, or does not fit the type.
pub fn without_managers<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Metadata { skipped: None, of: PhantomData::<T> }.deserialize(deserializer)
}

/// Reads an object. Counts the length of the skipped JSON in bytes.
struct Object<'a>(&'a Cell<usize>);

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
            let value = if name == "metadata" {
                fields.next_value_seed(Metadata { skipped: Some(self.0), of: PhantomData::<Value> })?
            } else {
                fields.next_value::<Value>()?
            };
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

/// Reads metadata. Counts the skipped JSON if asked to, which needs the reader of `serde_json` and a text.
struct Metadata<'a, T> {
    skipped: Option<&'a Cell<usize>>,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Metadata<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Metadata<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, all: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(Fields { all, skipped: self.skipped }))
    }
}

/// The other fields of metadata.
struct Fields<'a, A> {
    all: A,
    skipped: Option<&'a Cell<usize>>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(name) = self.all.next_key::<String>()? {
            if name != "managedFields" {
                return seed.deserialize(StringDeserializer::<A::Error>::new(name)).map(Some);
            }
            if let Some(skipped) = self.skipped {
                let length = self.all.next_value::<&RawValue>()?.get().len();
                skipped.set(skipped.get().saturating_add(length));
            } else {
                self.all.next_value::<IgnoredAny>()?;
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.all.next_value_seed(seed)
    }
}

/// Declares that `$slim`, which has a field `metadata` (`ObjectMeta`), is read from the endpoint of `$full`, a kind of
/// `kube`: watches of many objects need not hold unused fields. Without `$full` the kind is one that is named at run time
/// (`ApiResource`).
#[macro_export]
macro_rules! read_as {
    ($slim:ty, $full:ty) => {
        impl ::kube::Resource for $slim {
            type DynamicType = ();
            type Scope = <$full as ::kube::Resource>::Scope;

            fn kind((): &()) -> ::std::borrow::Cow<'_, str> {
                <$full as ::kube::Resource>::kind(&())
            }

            fn group((): &()) -> ::std::borrow::Cow<'_, str> {
                <$full as ::kube::Resource>::group(&())
            }

            fn version((): &()) -> ::std::borrow::Cow<'_, str> {
                <$full as ::kube::Resource>::version(&())
            }

            fn plural((): &()) -> ::std::borrow::Cow<'_, str> {
                <$full as ::kube::Resource>::plural(&())
            }

            fn meta(&self) -> &::kube::api::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ::kube::api::ObjectMeta {
                &mut self.metadata
            }
        }
    };
    ($slim:ty) => {
        impl ::kube::Resource for $slim {
            type DynamicType = ::kube::api::ApiResource;
            type Scope = ::kube::core::DynamicResourceScope;

            fn kind(resource: &Self::DynamicType) -> ::std::borrow::Cow<'_, str> {
                resource.kind.as_str().into()
            }

            fn group(resource: &Self::DynamicType) -> ::std::borrow::Cow<'_, str> {
                resource.group.as_str().into()
            }

            fn version(resource: &Self::DynamicType) -> ::std::borrow::Cow<'_, str> {
                resource.version.as_str().into()
            }

            fn plural(resource: &Self::DynamicType) -> ::std::borrow::Cow<'_, str> {
                resource.plural.as_str().into()
            }

            fn meta(&self) -> &::kube::api::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ::kube::api::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[derive(Deserialize)]
    struct Slim {
        #[serde(deserialize_with = "without_managers")]
        metadata: BTreeMap<String, String>,
    }

    #[test]
    fn measured_objects_have_no_managers_of_fields() {
        // A number that no value can hold.
        let text = r#"{"metadata":{"name":"a","managedFields":[1e999],"uid":"u"},"spec":{"managedFields":[1]}}"#;
        let object = json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"managedFields": [1]}});
        assert_eq!(measured(text).unwrap(), (object, text.len() - "[1e999]".len()));
    }

    #[test]
    fn other_json_is_measured_as_it_is() {
        for text in ["1", "[]", "{}", r#"{"metadata":[{"managedFields":1}]}"#, r#"{"metadata":null}"#] {
            assert_eq!(measured(text).unwrap(), (serde_json::from_str(text).unwrap(), text.len()), "{text}");
        }
        assert!(measured("{").is_err());
    }

    #[test]
    fn managers_of_fields_are_skipped_unread() {
        // A number that no value can hold.
        let text = r#"{"metadata":{"name":"a","managedFields":[1e999],"uid":"u"},"spec":1}"#;
        let read: Slim = serde_json::from_str(text).unwrap();
        let fields = [("name", "a"), ("uid", "u")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(read.metadata, BTreeMap::from(fields));
        let bare: Slim = serde_json::from_str(r#"{"metadata":{"managedFields":[]}}"#).unwrap();
        assert!(bare.metadata.is_empty());
        for wrong in [r#"{"metadata":1}"#, r#"{"metadata":null}"#, r#"{"metadata":{"name":1}}"#, "{}"] {
            assert!(serde_json::from_str::<Slim>(wrong).is_err(), "{wrong}");
        }
    }
}
