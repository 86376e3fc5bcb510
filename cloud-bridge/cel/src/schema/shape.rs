//! What values a structural schema describes, as rules see them (K8s apiserver pkg/cel/common, `SchemaDeclType`).

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value;

use crate::escape::escape;
use crate::types::Type;

/// Values at one place of a schema.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shape {
    /// `x-kubernetes-int-or-string`: known only when a rule runs.
    Either,
    Bool,
    Int,
    Double,
    String,
    Bytes,
    Duration,
    Date,
    DateTime,
    List(Rc<Shape>),
    Map(Rc<Shape>),
    /// Fields by the names that the object has.
    Object(Rc<BTreeMap<String, Field>>),
}

/// One property.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Field {
    /// The name that a rule has for it.
    pub(crate) escaped: String,
    pub(crate) shape: Shape,
}

impl Shape {
    /// From a schema; `None` for what rules cannot see. The root of a resource has a type and a name.
    pub(crate) fn of(schema: &Value, root: bool) -> Option<Self> {
        if schema["x-kubernetes-int-or-string"] == true {
            return Some(Self::Either);
        }
        let format = schema["format"].as_str().unwrap_or_default();
        Some(match schema["type"].as_str()? {
            "boolean" => Self::Bool,
            "integer" => Self::Int,
            "number" => Self::Double,
            "string" => match format {
                "byte" => Self::Bytes,
                "duration" => Self::Duration,
                "date" => Self::Date,
                "date-time" => Self::DateTime,
                _ => Self::String,
            },
            "array" => Self::List(Rc::new(Self::of(&schema["items"], embedded(&schema["items"]))?)),
            "object" if schema["additionalProperties"].is_object() && !root => {
                let values = &schema["additionalProperties"];
                Self::Map(Rc::new(Self::of(values, embedded(values))?))
            }
            "object" => Self::Object(Rc::new(fields(schema, root))),
            _ => return None,
        })
    }

    /// The type of such values.
    pub(crate) fn type_of(&self) -> Type {
        match self {
            Self::Either => Type::Dyn,
            Self::Bool => Type::Bool,
            Self::Int => Type::Int,
            Self::Double => Type::Double,
            Self::String => Type::String,
            Self::Bytes => Type::Bytes,
            Self::Duration => Type::Duration,
            Self::Date | Self::DateTime => Type::Timestamp,
            Self::List(item) => Type::List(Rc::new(item.type_of())),
            Self::Map(value) => Type::Map(Rc::new(Type::String), Rc::new(value.type_of())),
            Self::Object(fields) => {
                let types = fields.values().map(|field| (field.escaped.clone(), field.shape.type_of()));
                Type::Object(Rc::new(types.collect()))
            }
        }
    }
}

/// Whether a schema describes a resource within a resource.
pub(crate) fn embedded(schema: &Value) -> bool {
    schema["x-kubernetes-embedded-resource"] == true
}

fn fields(schema: &Value, root: bool) -> BTreeMap<String, Field> {
    let mut fields = BTreeMap::new();
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        if let (Some(escaped), Some(shape)) = (escape(name), Shape::of(inner, embedded(inner))) {
            fields.insert(name.clone(), Field { escaped, shape });
        }
    }
    if root {
        let text = |name: &str| (name.to_owned(), Field { escaped: name.to_owned(), shape: Shape::String });
        fields.extend([text("apiVersion"), text("kind")]);
        // Of the metadata, rules see only names.
        let names = BTreeMap::from([text("name"), text("generateName")]);
        let metadata = Field { escaped: "metadata".to_owned(), shape: Shape::Object(Rc::new(names)) };
        fields.insert("metadata".to_owned(), metadata);
    }
    fields
}
