//! One rule of a schema, compiled: its errors, or a program.

use kube_cel::cel::common::ast::IdedExpr;
use kube_cel::cel::parser::{ParseErrors, Parser};
use serde_json::Value;

use crate::check::{check, located};
use crate::cost::meter;
use crate::environment::Environment;
use crate::optional;
use crate::question::{Finding, Reason};
use crate::schema::shape::Shape;
use crate::types::Type;

const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// An expression that can be run.
pub(crate) struct Program {
    pub(crate) expr: IdedExpr,
    /// Steps of the parts that run once.
    pub(crate) steps: u64,
    uses_old: bool,
}

/// One rule.
pub(crate) struct Rule {
    pub(crate) source: String,
    pub(crate) message: String,
    pub(crate) reason: String,
    /// Below the value that the rule is about: `.spec.size` without the first point.
    pub(crate) field_path: String,
    pub(crate) optional_old: bool,
    pub(crate) uses_old: bool,
    /// Absent if the rule cannot run; `error` has the reason.
    pub(crate) program: Option<Program>,
    pub(crate) message_program: Option<Program>,
    pub(crate) error: Option<String>,
    /// Errors of the rule: the field below the rule's position, and the error.
    complaints: Vec<(&'static str, Finding)>,
}

impl Rule {
    /// Compiles a rule on values of this shape.
    pub(crate) fn of(rule: &Value, schema: &Value, shape: Option<&Shape>, environment: &Environment) -> Self {
        let text = |field: &str| rule[field].as_str().unwrap_or_default().to_owned();
        let mut made = Self {
            source: text("rule"),
            message: text("message").trim().to_owned(),
            reason: text("reason"),
            field_path: String::new(),
            optional_old: rule["optionalOldSelf"] == true,
            uses_old: false,
            program: None,
            message_program: None,
            error: None,
            complaints: Vec::new(),
        };
        made.words(rule, schema);
        if made.complaints.is_empty() {
            made.compile(rule, shape, environment);
        }
        made
    }

    /// Errors of the rule, for the definition.
    pub(crate) fn findings(&self, path: &str, index: usize, uncorrelatable: Option<&str>) -> Vec<Finding> {
        let place = format!("{path}.x-kubernetes-validations[{index}]");
        let put = |(field, finding): &(&str, Finding)| Finding { field: format!("{place}.{field}"), ..finding.clone() };
        let mut found: Vec<Finding> = self.complaints.iter().map(put).collect();
        if let Some(list) = uncorrelatable.filter(|_| self.uses_old) {
            let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
            found.push(Finding::invalid(&format!("{place}.rule"), Some(&format!("{:?}", self.source)), &why));
        }
        found
    }

    fn complain(&mut self, field: &'static str, finding: Finding) {
        self.complaints.push((field, finding));
    }

    fn invalid(&mut self, field: &'static str, shown: &str, why: &str) {
        self.complain(field, Finding::invalid("", Some(shown), why));
    }

    /// All but the expressions.
    fn words(&mut self, rule: &Value, schema: &Value) {
        let text = |field: &str| rule[field].as_str().unwrap_or_default();
        let quoted = |field: &str| format!("{:?}", text(field));
        let lines = |text: &str| text.contains(['\n', '\r']);
        let blank = |field: &str| !text(field).is_empty() && text(field).trim().is_empty();
        if self.source.trim().is_empty() {
            self.complain("rule", Finding::required("", "rule is not specified"));
        } else if blank("message") {
            self.invalid("message", &quoted("message"), "message must be non-empty if specified");
        } else if lines(&self.message) {
            self.invalid("message", &quoted("message"), "message must not contain line breaks");
        } else if lines(self.source.trim()) && self.message.is_empty() {
            let why = "message must be specified if rule contains line breaks";
            self.complain("message", Finding::required("", why));
        }
        if blank("messageExpression") {
            let why = "messageExpression must be non-empty if specified";
            self.complain("messageExpression", Finding::required("", why));
        }
        if !self.reason.is_empty() && !REASONS.contains(&self.reason.as_str()) {
            let names: Vec<String> = REASONS.iter().map(|name| format!("{name:?}")).collect();
            let text = format!("Unsupported value: {:?}: supported values: {}", self.reason, names.join(", "));
            self.complain("reason", Finding { field: String::new(), reason: Reason::NotSupported, text });
        }
        let path = text("fieldPath");
        if blank("fieldPath") {
            self.invalid("fieldPath", &quoted("fieldPath"), "fieldPath must be non-empty if specified");
        } else if lines(path) {
            self.invalid("fieldPath", &quoted("fieldPath"), "fieldPath must not contain line breaks");
        }
        if !path.is_empty() {
            match field_path(path, schema) {
                Some(normal) => self.field_path = normal,
                None => self.invalid("fieldPath", &quoted("fieldPath"), "fieldPath must be a valid path"),
            }
        }
    }

    fn compile(&mut self, rule: &Value, shape: Option<&Shape>, environment: &Environment) {
        let shown = internal(rule);
        let Some(shape) = shape else {
            let why = "rule declared on schema that does not support validation rules type: '' x-kubernetes-preserve-unknown-fields: 'true'";
            return self.fail("rule", &shown, why.to_owned());
        };
        let own = shape.type_of();
        let old = if self.optional_old { Type::Optional(std::rc::Rc::new(own.clone())) } else { own.clone() };
        let variables = || vec![("self".to_owned(), own.clone()), ("oldSelf".to_owned(), old.clone())];
        match program(&self.source, variables(), environment) {
            Ok((_, result)) if !matches!(result, Type::Bool | Type::Dyn) => {
                self.fail("rule", &shown, "cel expression must evaluate to a bool".to_owned());
            }
            Ok((program, _)) => {
                self.uses_old = program.uses_old;
                self.program = Some(program);
            }
            Err(why) => self.fail("rule", &shown, format!("compilation failed: {why}")),
        }
        let expression = rule["messageExpression"].as_str().unwrap_or_default();
        if !expression.is_empty() {
            match program(expression, variables(), environment) {
                Ok((_, result)) if !matches!(result, Type::String | Type::Dyn) => {
                    self.fail("messageExpression", &shown, "messageExpression must evaluate to a string".to_owned());
                }
                Ok((program, _)) => {
                    self.uses_old |= program.uses_old;
                    self.message_program = Some(program);
                }
                Err(why) => {
                    self.fail("messageExpression", &shown, format!("messageExpression compilation failed: {why}"));
                }
            }
        }
        if !self.uses_old && !rule["optionalOldSelf"].is_null() && self.program.is_some() {
            let shown = rule["optionalOldSelf"].to_string();
            self.invalid("optionalOldSelf", &shown, "may not be set if oldSelf is not used in rule");
        }
    }

    fn fail(&mut self, field: &'static str, shown: &str, why: String) {
        self.invalid(field, shown, &why);
        self.error.get_or_insert(why);
    }
}

/// Parses, checks and meters an expression.
fn program(source: &str, variables: Vec<(String, Type)>, environment: &Environment) -> Result<(Program, Type), String> {
    let parser = Parser::default().enable_optional_syntax(true);
    let mut expr = parser.parse(source).map_err(|errors| syntax(source, &errors))?;
    optional::rename(&mut expr);
    let checked = check(&expr, source, variables, &environment.functions);
    if !checked.errors.is_empty() {
        return Err(checked.errors.join("\n"));
    }
    let steps = meter(&mut expr);
    Ok((Program { expr, steps, uses_old: checked.uses_old }, checked.result))
}

fn syntax(source: &str, errors: &ParseErrors) -> String {
    let place = |(line, column): (isize, isize)| {
        let before: usize =
            source.split_inclusive('\n').take(usize::try_from(line - 1).unwrap_or(0)).map(str::len).sum();
        let after: usize =
            source.get(before..)?.chars().take(usize::try_from(column - 1).unwrap_or(0)).map(char::len_utf8).sum();
        Some(before + after)
    };
    let shown =
        |text: &str| if text.starts_with("Syntax error") { text.to_owned() } else { format!("Syntax error: {text}") };
    let texts: Vec<String> =
        errors.errors.iter().map(|error| located(source, place(error.pos), &shown(&error.msg))).collect();
    texts.join("\n")
}

/// A rule as the API server shows its internal form.
fn internal(rule: &Value) -> String {
    let text = |field: &str| rule[field].as_str().unwrap_or_default();
    let shown = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        Value::from(text("rule")),
        Value::from(text("message")),
        Value::from(text("messageExpression")),
        rule["reason"],
        Value::from(text("fieldPath")),
        rule["optionalOldSelf"],
    );
    // Go writes JSON that is safe within HTML.
    shown.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// A path like `.spec['a.b'].c` as paths of fields are shown, if the schema has it.
fn field_path(path: &str, schema: &Value) -> Option<String> {
    let (mut rest, mut schema, mut normal) = (path, schema, String::new());
    while !rest.is_empty() {
        let name;
        if let Some(after) = rest.strip_prefix("['") {
            let (inner, left) = after.split_once("']")?;
            (name, rest) = (inner.replace("\\'", "'").replace("\\\\", "\\"), left);
        } else {
            let after = rest.strip_prefix('.')?;
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (inner, left) = after.split_at_checked(end)?;
            (name, rest) = (inner.to_owned(), left);
        }
        if schema["properties"].is_object() {
            schema = schema["properties"].get(&name)?;
            let point = if normal.is_empty() { "" } else { "." };
            normal = format!("{normal}{point}{name}");
        } else {
            schema = Some(&schema["additionalProperties"]).filter(|inner| inner.is_object())?;
            normal = format!("{normal}[{name}]");
        }
    }
    Some(normal)
}
