//! How the value at one place of an object merges in server-side apply: by the table of a built-in kind, or by the schema
//! of a custom one (`x-kubernetes-list-type`, `x-kubernetes-list-map-keys`, `x-kubernetes-map-type`).

use serde_json::{Map, Value};

use super::merge_keys::{self, ATOMIC, List, Type};

/// The type of one place.
#[derive(Debug, Clone, Copy)]
pub enum Shape<'s> {
    /// A place of a built-in kind: the type of its fields, how it merges as a list, and whether it is one value.
    Built { of: &'static Type, list: List, atomic: bool },
    /// A custom object as a whole: its metadata is that of every kind.
    Custom(&'s Value),
    /// A place of a custom object, by its schema.
    Schema(&'s Value),
}

impl<'s> Shape<'s> {
    /// An object of a built-in kind.
    pub(crate) fn built(of: &'static Type) -> Self {
        Self::Built { of, list: List::Replace, atomic: false }
    }

    /// The place below a field or a key of a map.
    pub(crate) fn field(self, name: &str) -> Self {
        match self {
            Self::Built { of, .. } => {
                let (of, list) = of.field(name);
                Self::Built {
                    of,
                    list,
                    atomic: matches!(list, List::Whole | List::One) || ATOMIC.binary_search(&name).is_ok(),
                }
            }
            Self::Custom(_) if name == "metadata" => Self::built(&merge_keys::OBJECT).field(name),
            Self::Custom(schema) | Self::Schema(schema) => {
                Self::Schema(schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]))
            }
        }
    }

    /// The place of an item of a list.
    pub(crate) fn item(self) -> Self {
        match self {
            Self::Built { of, atomic, .. } => Self::Built { of, list: List::Replace, atomic },
            Self::Custom(schema) | Self::Schema(schema) => Self::Schema(&schema["items"]),
        }
    }

    /// Whether an object here is one value, which is owned and replaced as a whole.
    pub(crate) fn is_atomic(self) -> bool {
        match self {
            Self::Built { atomic, .. } => atomic,
            Self::Custom(schema) | Self::Schema(schema) => schema["x-kubernetes-map-type"] == "atomic",
        }
    }

    /// Whether a name is a key of a map here, and no field of a structure.
    pub(crate) fn is_map_key(self, name: &str) -> bool {
        match self {
            Self::Built { .. } => false,
            Self::Custom(schema) => name != "metadata" && schema["properties"].get(name).is_none(),
            Self::Schema(schema) => schema["properties"].get(name).is_none(),
        }
    }

    /// How a list here merges: `None` as a whole, without keys as a set of values, else by these keys.
    pub(crate) fn list_keys(self) -> Option<Vec<&'s str>> {
        match self {
            Self::Built { list, .. } => match list {
                List::Replace | List::Whole | List::One | List::By { map: [], .. } => None,
                List::Set => Some(Vec::new()),
                List::By { map, .. } => Some(map.to_vec()),
            },
            Self::Custom(schema) | Self::Schema(schema) => match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => Some(Vec::new()),
                Some("map") => {
                    let keys = schema["x-kubernetes-list-map-keys"].as_array();
                    Some(keys.into_iter().flatten().filter_map(Value::as_str).collect())
                }
                _ => None,
            },
        }
    }

    /// The step that names an item of a list here: `k:{"name":"x"}`, or `v:"x"` in a set. A key that the item leaves out
    /// has the default of its schema (structured-merge-diff typed/helpers.go, `getAssociativeKeyDefault`).
    pub(crate) fn element(self, item: &Value, keys: &[&str]) -> String {
        if keys.is_empty() {
            return format!("v:{item}");
        }
        let default = |key: &str| match self {
            Self::Built { .. } if key == "protocol" => "TCP".into(),
            // Of references to objects of the namespace, which leave out an empty one.
            Self::Built { .. } if key == "name" => "".into(),
            Self::Built { .. } => Value::Null,
            Self::Custom(schema) | Self::Schema(schema) => schema["items"]["properties"][key]["default"].clone(),
        };
        let value = |key: &str| item.get(key).cloned().unwrap_or_else(|| default(key));
        let named: Map<String, Value> = keys.iter().map(|key| ((*key).to_owned(), value(key))).collect();
        format!("k:{}", Value::Object(named))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schema_decides_how_custom_places_merge() {
        let schema = json!({"properties": {
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic"},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "mode"],
                "items": {"properties": {"mode": {"default": "plain"}}}},
            "map": {"additionalProperties": {"properties": {"set": {"x-kubernetes-list-type": "set"}}}},
        }});
        let root = Shape::Custom(&schema);
        assert!(root.field("whole").is_atomic() && !root.field("map").is_atomic() && !root.field("none").is_atomic());
        let ports = root.field("ports");
        let keys = ports.list_keys().unwrap();
        assert_eq!(ports.element(&json!({"port": 1}), &keys), "k:{\"mode\":\"plain\",\"port\":1}");
        assert_eq!(root.field("map").field("x").field("set").list_keys(), Some(Vec::new()));
        assert!(root.field("map").is_map_key("x") && !root.field("map").field("x").is_map_key("set"));
        assert_eq!(root.field("metadata").field("finalizers").list_keys(), Some(Vec::new()));
        assert_eq!(root.field("metadata").field("ownerReferences").list_keys(), Some(vec!["uid"]));
    }

    #[test]
    fn selectors_of_built_in_kinds_are_one_value() {
        assert!(ATOMIC.is_sorted(), "names are found by halves");
        let root = Shape::built(&merge_keys::OBJECT);
        assert!(root.field("spec").field("selector").is_atomic());
        assert!(root.field("spec").field("template").field("spec").field("nodeSelector").is_atomic());
        assert!(root.field("metadata").field("ownerReferences").item().is_atomic());
        assert!(!root.field("metadata").field("labels").is_atomic());
    }
    #[test]
    fn same_names_differ_between_kinds() {
        let root = |resource: &str, version: &str| {
            let all = crate::kinds::resources();
            all.into_iter().find(|one| one.plural == resource && one.version == version).unwrap()
        };
        let atomic = |resource: &crate::resource::Resource, path: &[&str]| {
            path.iter().fold(resource.strategy().shape(), |shape, name| shape.field(name)).is_atomic()
        };
        let target = ["spec", "scaleTargetRef"];
        assert!(atomic(&root("horizontalpodautoscalers", "v1"), &target));
        assert!(!atomic(&root("horizontalpodautoscalers", "v2"), &target));
        let ingress = root("ingresses", "v1");
        assert!(atomic(&ingress, &["spec", "defaultBackend", "resource"]));
        assert!(atomic(&ingress, &["spec", "defaultBackend", "service", "port"]));
        assert!(!atomic(&ingress, &["spec", "defaultBackend", "service"]));
    }
}
