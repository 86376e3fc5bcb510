//! Runs the rules of a schema on an object, in the order and with the words of the API server (K8s
//! apiextensions-apiserver pkg/apiserver/schema/cel/validation.go).

use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
use serde_json::Value;
use std::sync::Arc;

use crate::cost::{PER_OBJECT, PER_RULE};
use crate::environment::Environment;
use crate::question::{Finding, Reason};
use crate::rule::{Program, Rule};
use crate::schema::Node;
use crate::value::convert;

/// How long an evaluated message may be.
const MESSAGE_MAX: usize = 5 * 1024;
/// Maximum number of findings: more do not help.
const FINDINGS_MAX: usize = 100;

/// Verdict of the rules on an object.
#[derive(Default)]
pub(crate) struct Verdict {
    pub(crate) findings: Vec<Finding>,
    pub(crate) warnings: Vec<String>,
}

/// Judges an object, and its change when there is an old one.
pub(crate) fn validate(node: &Node, environment: &Environment, new: &Value, old: Option<&Value>) -> Verdict {
    let mut run = Run { environment, budget: PER_OBJECT, verdict: Verdict::default() };
    run.node(node, &Place { path: String::new(), new, old, before: old, above: false });
    run.verdict
}

/// One value of an object.
struct Place<'a> {
    path: String,
    new: &'a Value,
    /// What `oldSelf` is: in lists only of items with keys.
    old: Option<&'a Value>,
    /// The old value, to detect a change; without any, `above` decides.
    before: Option<&'a Value>,
    /// Whether the nearest value around it that can be held against an older one has not changed.
    above: bool,
}

impl<'a> Place<'a> {
    fn unchanged(&self) -> bool {
        self.before.map_or(self.above, |before| before == self.new)
    }

    fn below(&self, path: String, new: &'a Value, old: Option<&'a Value>) -> Self {
        let above = self.unchanged();
        Self { path, new, old, before: self.before.and(old), above }
    }

    /// The path as an error shows it.
    fn shown(&self) -> &str {
        if self.path.is_empty() { "<nil>" } else { &self.path }
    }

    fn child(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

/// No further rule may run.
struct Spent;

struct Run<'a> {
    environment: &'a Environment,
    budget: u64,
    verdict: Verdict,
}

impl Run<'_> {
    fn node(&mut self, node: &Node, place: &Place<'_>) {
        // Running out is a finding by itself.
        let _ = self.walk(node, place);
    }

    fn walk(&mut self, node: &Node, place: &Place<'_>) -> Result<(), Spent> {
        if place.new.is_null() {
            return Ok(());
        }
        self.rules(node, place)?;
        for inner in &node.all_of {
            let place =
                Place { path: place.path.clone(), new: place.new, old: place.old, before: None, above: place.above };
            self.walk(inner, &place)?;
        }
        match place.new {
            Value::Array(items) => {
                let Some(inner) = &node.items else { return Ok(()) };
                let old = place.old.and_then(Value::as_array);
                for (index, item) in items.iter().enumerate() {
                    let same = node.keys.as_ref().zip(old).and_then(|(keys, old)| correlated(item, old, keys));
                    self.walk(inner, &place.below(format!("{}[{index}]", place.path), item, same))?;
                }
            }
            Value::Object(map) => {
                let old = |key: &str| place.old.and_then(|old| old.get(key));
                if let Some(inner) = &node.additional {
                    for (key, value) in map.iter().filter(|(key, _)| !node.properties.contains_key(*key)) {
                        self.walk(inner, &place.below(format!("{}[{key}]", place.path), value, old(key)))?;
                    }
                }
                for (key, value) in map {
                    if let Some(inner) = node.properties.get(key) {
                        self.walk(inner, &place.below(place.child(key), value, old(key)))?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn rules(&mut self, node: &Node, place: &Place<'_>) -> Result<(), Spent> {
        if node.rules.is_empty() {
            return Ok(());
        }
        let quoted = format!("{:?}", node.kind);
        let Some(shape) = &node.shape else {
            let why =
                format!("rule compile error: {}", node.rules.iter().find_map(|r| r.error.clone()).unwrap_or_default());
            self.add(Finding::invalid(place.shown(), Some(&quoted), &why))?;
            return Ok(());
        };
        let environment = self.environment;
        let scope = |optional: bool| {
            let mut scope = environment.context.new_inner_scope();
            scope.add_variable_from_value("self", convert(place.new, shape));
            let old = place.old.filter(|old| !old.is_null()).map(|old| convert(old, shape));
            if optional {
                let old = old.map_or_else(OptionalValue::none, OptionalValue::of);
                scope.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(old)));
            } else if let Some(old) = old {
                scope.add_variable_from_value("oldSelf", old);
            }
            scope
        };
        let plain = scope(false);
        let optional = node.rules.iter().any(|rule| rule.optional_old).then(|| scope(true));
        for (index, rule) in node.rules.iter().enumerate() {
            if let Some(error) = &rule.error {
                let why = format!("rule compile error: {error}");
                self.add(Finding::invalid(place.shown(), Some(&quoted), &why))?;
                continue;
            }
            let Some(program) = &rule.program else { continue };
            if rule.uses_old && !rule.optional_old && place.old.is_none_or(Value::is_null) {
                continue;
            }
            let scope = optional.as_ref().filter(|_| rule.optional_old).unwrap_or(&plain);
            let note = serde_json::json!({ "rule": rule.source });
            environment.note(&format!("{}.x-kubernetes-validations[{index}].rule", node.path), &note);
            self.rule(node, rule, program, scope, place)?;
        }
        Ok(())
    }

    fn rule(
        &mut self,
        node: &Node,
        rule: &Rule,
        program: &Program,
        scope: &Context<'_>,
        place: &Place<'_>,
    ) -> Result<(), Spent> {
        let quoted = format!("{:?}", node.kind);
        let named = if rule.message.is_empty() { rule.source.trim() } else { &rule.message };
        let result = self.evaluate(program, scope);
        let failed = |why: String| Finding::invalid(place.shown(), Some(&quoted), &why);
        match result {
            Outcome::Value(Cel::Bool(true)) => return Ok(()),
            Outcome::Value(_) => {}
            Outcome::TooLong => {
                let why = format!(
                    "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: {named}"
                );
                self.add(failed(why))?;
                return Err(Spent);
            }
            Outcome::Spent => {
                let why =
                    "validation failed due to running out of cost budget, no further validation rules will be run";
                self.add(failed(why.to_owned()))?;
                return Err(Spent);
            }
            Outcome::Error(ExecutionError::NoSuchOverload) => {
                let why = format!(
                    "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: {named}"
                );
                return self.add(failed(why));
            }
            Outcome::Error(error) => return self.add(failed(format!("{} evaluating rule: {named}", words(&error)))),
        }
        let path = match (place.path.as_str(), rule.field_path.as_str()) {
            (path, "") => {
                if path.is_empty() {
                    "<nil>".to_owned()
                } else {
                    path.to_owned()
                }
            }
            ("", below) => below.to_owned(),
            (path, below) if below.starts_with('[') => format!("{path}{below}"),
            (path, below) => format!("{path}.{below}"),
        };
        let detail = self.message(rule, scope).unwrap_or_else(|| {
            if rule.message.is_empty() { format!("failed rule: {named}") } else { rule.message.clone() }
        });
        let finding = broken(path, place.new, &detail, &rule.reason);
        if !rule.uses_old && place.unchanged() {
            // An existing error may stay: the client only gets a warning.
            self.verdict.warnings.push(finding.to_string());
            return Ok(());
        }
        self.add(finding)
    }

    fn message(&mut self, rule: &Rule, scope: &Context<'_>) -> Option<String> {
        let program = rule.message_program.as_ref()?;
        let Outcome::Value(Cel::String(text)) = self.evaluate(program, scope) else { return None };
        let text = text.trim();
        (!text.is_empty() && text.len() <= MESSAGE_MAX && !text.contains('\n')).then(|| text.to_owned())
    }

    fn evaluate(&mut self, program: &Program, scope: &Context<'_>) -> Outcome {
        let counter = &self.environment.counter;
        counter.start(program.steps);
        let result = scope.resolve(&program.expr);
        let steps = counter.steps();
        if steps > PER_RULE {
            return Outcome::TooLong;
        }
        let Some(left) = self.budget.checked_sub(steps) else { return Outcome::Spent };
        self.budget = left;
        result.map_or_else(Outcome::Error, Outcome::Value)
    }

    fn add(&mut self, finding: Finding) -> Result<(), Spent> {
        self.verdict.findings.push(finding);
        if self.verdict.findings.len() < FINDINGS_MAX { Ok(()) } else { Err(Spent) }
    }
}

enum Outcome {
    Value(Cel),
    Error(ExecutionError),
    /// The rule takes too many steps.
    TooLong,
    /// All rules on the object do.
    Spent,
}

/// The item of the old list with the same keys.
fn correlated<'a>(item: &Value, old: &'a [Value], keys: &[String]) -> Option<&'a Value> {
    old.iter().find(|other| keys.iter().all(|key| other[key] == item[key]))
}

/// Errors of a rule that runs, in cel-go's words.
fn words(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(index) => format!("index out of bounds: {index:?}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        other => {
            let mut text = other.to_string();
            if text.len() > 500 {
                text = text.chars().take(500).collect();
            }
            text
        }
    }
}

fn broken(field: String, value: &Value, detail: &str, reason: &str) -> Finding {
    let shown = (!value.is_object() && !value.is_array()).then(|| value.to_string());
    match reason {
        "FieldValueForbidden" => Finding { field, reason: Reason::Forbidden, text: format!("Forbidden: {detail}") },
        "FieldValueRequired" => Finding::required(&field, detail),
        "FieldValueDuplicate" => {
            let text = shown.map_or_else(|| "Duplicate value".to_owned(), |shown| format!("Duplicate value: {shown}"));
            Finding { field, reason: Reason::Duplicate, text }
        }
        _ => Finding::invalid(&field, shown.as_deref(), detail),
    }
}
