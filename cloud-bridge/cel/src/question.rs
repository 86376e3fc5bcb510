//! Questions to the helper, and its answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One question. The asking side may borrow its values: parsed objects are many times as large as their text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Question<V = Value> {
    /// Whether the rules of these schemas can be compiled, each with the path under which findings are reported.
    Compile { schemas: Vec<(String, V)> },
    /// Stores a schema under a name that stands for its content.
    Learn { name: String, schema: V },
    /// Whether an object obeys the rules of the schema with this name.
    Validate { name: String, new: V, old: Option<V> },
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// Errors of the object. Errors that existed before are warnings.
    Judged {
        findings: Vec<Finding>,
        warnings: Vec<String>,
    },
    Learned,
    /// No schema has this name: it was never learned, or had to give way to others.
    Unknown,
}

/// Why a field is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    Invalid,
    Forbidden,
    Required,
    Duplicate,
    NotSupported,
}

/// One wrong field, in the API server's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub field: String,
    pub reason: Reason,
    /// The text after the path: `Invalid value: "x": must be ...`.
    pub text: String,
}

impl Finding {
    /// `Invalid value: SHOWN: DETAIL`, with the value as text; without a value, `Invalid value: DETAIL`.
    pub(crate) fn invalid(field: &str, shown: Option<&str>, detail: &str) -> Self {
        let text = match shown {
            Some(shown) => format!("Invalid value: {shown}: {detail}"),
            None => format!("Invalid value: {detail}"),
        };
        Self { field: field.to_owned(), reason: Reason::Invalid, text }
    }

    /// `Required value: DETAIL`.
    pub(crate) fn required(field: &str, detail: &str) -> Self {
        Self { field: field.to_owned(), reason: Reason::Required, text: format!("Required value: {detail}") }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.text)
    }
}
