//! Questions about the validation rules of custom resources, and their answers. Independent of the helper in `cel`.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use apimachinery::field::FieldError;
use sampan_cel::frame::{self, QUESTION_MAX};
use sampan_cel::question::Question;

/// A schema that has rules.
#[derive(Debug)]
pub struct RuledSchema {
    /// Stands for the content.
    pub name: String,
    /// Name of the definition with the schema, for messages.
    pub definition: String,
    pub value: Value,
}

impl PartialEq for RuledSchema {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// Subject of a question.
#[derive(Debug, Clone, PartialEq)]
pub enum About {
    /// Whether the rules of the definition with this name can be compiled.
    Definition(String),
    /// Whether an object obeys the rules of its schema.
    Object(Arc<RuledSchema>),
}

/// One question, as the helper is sent it: parsed objects are many times as large, and a question may have to wait.
#[derive(Debug, Clone, PartialEq)]
pub struct CelQuestion {
    about: About,
    /// `None` when it is too large to be asked.
    frame: Option<Arc<[u8]>>,
}

impl CelQuestion {
    pub(crate) fn new(about: About, question: &Question<impl Serialize>) -> Self {
        Self { about, frame: frame::encode(question, QUESTION_MAX).ok().map(Arc::from) }
    }

    pub(crate) fn about(&self) -> &About {
        &self.about
    }

    /// `None` when it is too large to be asked.
    pub(crate) fn frame(&self) -> Option<Arc<[u8]>> {
        self.frame.clone()
    }

    /// The definition whose rules they are.
    pub(crate) fn definition(&self) -> &str {
        match &self.about {
            About::Definition(name) => name,
            About::Object(schema) => &schema.definition,
        }
    }
}

/// Verdict of the rules.
#[derive(Debug, Clone, Default)]
pub(crate) struct Verdict {
    pub(crate) errors: Vec<FieldError>,
    /// What breaks a rule but did so before.
    pub(crate) warnings: Vec<String>,
}

/// What one request has asked about rules.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) pending: Option<CelQuestion>,
    pub(crate) answered: Option<(CelQuestion, Verdict)>,
    name: Option<String>,
}

impl Asked {
    /// The generated name of a new object: the same each time that the verb runs.
    pub(crate) fn name(&mut self, make: impl FnOnce() -> String) -> String {
        self.name.get_or_insert_with(make).clone()
    }
}
