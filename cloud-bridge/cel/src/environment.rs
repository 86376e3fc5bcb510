//! Common state of all rules: their functions, the counter of their steps, and the note about the current rule.

use std::fs::File;
use std::os::unix::fs::FileExt;

use kube_cel::KubeCelExt;
use kube_cel::cel::{Context, ExecutionError, FunctionContext, ResolveResult, Value as Cel};
use serde_json::Value;

use crate::cost::{COUNT, Counter};
use crate::functions::{self, Functions};
use crate::optional;

/// How long the note may be. It is written whole, padded, so that nothing of an earlier one is left.
pub const NOTE: usize = 1024;

/// Shared by all rules.
pub(crate) struct Environment {
    pub(crate) functions: Functions,
    pub(crate) context: Context<'static>,
    pub(crate) counter: Counter,
    /// File with the present rule, for the process that finds this one dead.
    note: Option<File>,
}

impl Environment {
    pub(crate) fn new(note: Option<File>) -> Self {
        let counter = Counter::default();
        let mut context = Context::default().with_all();
        let counted = counter.clone();
        context.add_function(COUNT, move |steps: i64| -> ResolveResult {
            if counted.add(steps.unsigned_abs()) {
                return Ok(Cel::Bool(true));
            }
            Err(ExecutionError::function_error(COUNT, "too many steps"))
        });
        optional::register(&mut context);
        context.add_function("size", size);
        context.add_function("dyn", |value: Cel| -> ResolveResult { Ok(value) });
        context.add_function("bool", to_bool);
        Self { functions: functions::table(), context, counter, note }
    }

    /// Writes the next rule into the note.
    pub(crate) fn note(&self, place: &str, rule: &Value) {
        if let Some(file) = &self.note {
            let text = format!("{place}\n{}", rule["rule"].as_str().unwrap_or_default());
            self.write(file, &text);
        }
    }

    fn write(&self, file: &File, text: &str) {
        let mut bytes: Vec<u8> = text.bytes().take(NOTE).collect();
        bytes.resize(NOTE, 0);
        // If this fails, the message about a dead helper only has less detail.
        let _ = file.write_all_at(&bytes, 0);
    }
}

/// Characters of a string; the library counts its bytes.
fn size(call: &FunctionContext) -> ResolveResult {
    let given = match (&call.this, call.args) {
        (Some(this), _) => this.clone(),
        (None, [one]) => Cel::resolve(one, call.ptx)?,
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    let size = match &given {
        Cel::String(text) => text.chars().count(),
        Cel::Bytes(bytes) => bytes.len(),
        Cel::List(items) => items.len(),
        Cel::Map(map) => map.map.len(),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    Ok(Cel::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

fn to_bool(value: Cel) -> ResolveResult {
    let text = match &value {
        Cel::Bool(_) => return Ok(value),
        Cel::String(text) => text.as_str(),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    match text {
        "true" | "True" | "TRUE" | "t" | "1" => Ok(Cel::Bool(true)),
        "false" | "False" | "FALSE" | "f" | "0" => Ok(Cel::Bool(false)),
        _ => Err(ExecutionError::function_error("bool", "type conversion error from 'string' to 'bool'")),
    }
}
