//! Objects of which only a part is read. Independent of kinds and clients, which the users of this module define.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Reads metadata without `managedFields`, as `deserialize_with` of a field. Parsing those takes about as long as parsing
/// the rest of a pod, and watches do not use them.
///
/// # Errors
/// The value is not an object, or does not fit the type.
pub fn without_managers<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_map(Metadata(PhantomData))
}

struct Metadata<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Metadata<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(Fields(fields)))
    }
}

/// The other fields of metadata.
struct Fields<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(name) = self.0.next_key::<String>()? {
            if name != "managedFields" {
                return seed.deserialize(StringDeserializer::<A::Error>::new(name)).map(Some);
            }
            self.0.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(seed)
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

    use super::*;

    #[derive(Deserialize)]
    struct Slim {
        #[serde(deserialize_with = "without_managers")]
        metadata: BTreeMap<String, String>,
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
