//! What is asked about the validation rules of custom resources, and the answer. Who answers is `cel`'s business.

use std::sync::Arc;

use serde_json::Value;

use apimachinery::field::FieldError;

/// A schema that has rules.
#[derive(Debug)]
pub struct RuledSchema {
    /// Stands for the content.
    pub name: String,
    /// Whose schema it is, for people.
    pub definition: String,
    pub value: Value,
}

impl PartialEq for RuledSchema {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// One question.
#[derive(Debug, Clone, PartialEq)]
pub enum CelQuestion {
    /// Whether the rules of a definition can be compiled; each schema with its path in the definition.
    Definition { name: String, schemas: Vec<(String, Value)> },
    /// Whether an object obeys the rules of its schema.
    Object { schema: Arc<RuledSchema>, new: Value, old: Option<Value> },
}

impl CelQuestion {
    /// The definition whose rules they are.
    pub(crate) fn definition(&self) -> &str {
        match self {
            Self::Definition { name, .. } => name,
            Self::Object { schema, .. } => &schema.definition,
        }
    }
}

/// What the rules say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Verdict {
    pub(crate) errors: Vec<FieldError>,
    /// What breaks a rule but did so before.
    pub(crate) warnings: Vec<String>,
}
