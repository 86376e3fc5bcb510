//! Label selectors.

use serde_json::Value;

use super::SIZE_MAX;
use crate::json::{items, text, text_entries};
use crate::names;

/// Operator of a requirement for a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

impl Operator {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            "Gt" => Self::Gt,
            "Lt" => Self::Lt,
            _ => return None,
        })
    }

    /// Whether this value, if there is one, meets the operator. A value that is not a number is not greater and not
    /// less.
    fn holds<'a>(self, mut wanted: impl Iterator<Item = &'a str>, value: Option<&str>) -> bool {
        let numbers = |wanted: Option<&str>| Some((value?.parse::<i64>().ok()?, wanted?.parse::<i64>().ok()?));
        match self {
            Self::In => value.is_some_and(|value| wanted.any(|one| one == value)),
            Self::NotIn => value.is_none_or(|value| !wanted.any(|one| one == value)),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::Gt => numbers(wanted.next()).is_some_and(|(value, wanted)| value > wanted),
            Self::Lt => numbers(wanted.next()).is_some_and(|(value, wanted)| value < wanted),
        }
    }
}

/// Whether a value, if there is one, meets a requirement as objects carry it (`operator`, `values`): of a label
/// selector, of a node selector's term. An unknown operator is never met.
pub fn meets(requirement: &Value, value: Option<&str>) -> bool {
    let wanted = items(requirement, "values").iter().filter_map(Value::as_str);
    Operator::of(text(requirement, "operator")).is_some_and(|operator| operator.holds(wanted, value))
}

/// Whether these labels meet a LabelSelector as objects carry it (`matchLabels`, `matchExpressions`); one that is empty or
/// absent is met by all.
pub fn selects(selector: &Value, labels: &Value) -> bool {
    selects_by(selector, |key| labels.get(key).and_then(Value::as_str))
}

/// Same as [`selects`], for labels in another form: `label` returns the value of one by its key.
pub fn selects_by<'a>(selector: &Value, label: impl Fn(&str) -> Option<&'a str>) -> bool {
    text_entries(selector, "matchLabels").all(|(key, value)| label(key) == Some(value))
        && items(selector, "matchExpressions").iter().all(|one| meets(one, label(text(one, "key"))))
}

/// How many requirements a LabelSelector as objects carry it has, with the values in them.
pub fn size(selector: &Value) -> usize {
    let expressions = items(selector, "matchExpressions").iter().map(|one| 1 + items(one, "values").len());
    text_entries(selector, "matchLabels").count() + expressions.sum::<usize>()
}

/// A `LabelSelector` as one writes it: `app=web,tier in (a,b),!old`, by key.
#[must_use]
pub fn format_label_selector(selector: &Value) -> String {
    let labels = text_entries(selector, "matchLabels").map(|(key, value)| (key, format!("{key}={value}")));
    let expressions = items(selector, "matchExpressions").iter().map(|requirement| {
        let key = text(requirement, "key");
        let mut values: Vec<&str> = items(requirement, "values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let shown = match text(requirement, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        (key, shown)
    });
    let mut all: Vec<(&str, String)> = labels.chain(expressions).collect();
    all.sort_by_key(|(key, _)| *key);
    all.into_iter().map(|(_, shown)| shown).collect::<Vec<_>>().join(",")
}

/// One requirement on labels.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

impl Requirement {
    fn new(key: String, operator: Operator, values: Vec<String>) -> Self {
        Self { key, operator, values }
    }
}

/// A label selector; empty matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    /// Parses `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.
    ///
    /// # Errors
    /// A text like the API server's, or that the selector is too large.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Tokens { rest: text };
        let (mut requirements, mut size) = (Vec::new(), 0);
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        loop {
            let requirement = tokens.requirement()?;
            size += 1 + requirement.values.len();
            if size > SIZE_MAX {
                return Err(format!("the selector has more than {SIZE_MAX} requirements and values"));
            }
            requirements.push(requirement);
            match tokens.next() {
                Token::End => return Ok(Self(requirements)),
                Token::Symbol(",") => match tokens.peek() {
                    Token::Word(_) | Token::Symbol("!") => {}
                    other => return Err(format!("found '{}', expected: identifier after ','", other.text())),
                },
                other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
            }
        }
    }

    /// True without requirements.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many requirements it has, with the values in them.
    pub fn len(&self) -> usize {
        self.0.iter().map(|one| 1 + one.values.len()).sum()
    }

    /// Whether the object's labels meet every requirement.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.0.iter().all(|Requirement { key, operator, values }| {
            operator.holds(values.iter().map(String::as_str), labels[key.as_str()].as_str())
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Symbol(&'a str),
    End,
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Token::Word(text) | Token::Symbol(text) => text,
            Token::End => "",
        }
    }
}

#[derive(Clone, Copy)]
struct Tokens<'a> {
    rest: &'a str,
}

const SYMBOLS: &[&str] = &["==", "!=", "=", "!", ",", "(", ")", ">", "<"];

impl<'a> Tokens<'a> {
    fn next(&mut self) -> Token<'a> {
        self.rest = self.rest.trim_start();
        if self.rest.is_empty() {
            return Token::End;
        }
        if let Some(symbol) = SYMBOLS.iter().find(|s| self.rest.starts_with(**s)) {
            let (token, rest) = self.rest.split_at(symbol.len());
            self.rest = rest;
            return Token::Symbol(token);
        }
        let special = |c: char| c.is_whitespace() || "=!,()><".contains(c);
        let end = self.rest.find(special).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        Token::Word(token)
    }

    fn peek(&self) -> Token<'a> {
        let mut copy = *self;
        copy.next()
    }

    fn word(&mut self) -> Result<&'a str, String> {
        match self.next() {
            Token::Word(word) => Ok(word),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        if self.peek() == Token::Symbol("!") {
            self.next();
            return Ok(Requirement::new(key(self.word()?)?, Operator::DoesNotExist, Vec::new()));
        }
        let name = key(self.word()?)?;
        match self.peek() {
            Token::End | Token::Symbol(",") => Ok(Requirement::new(name, Operator::Exists, Vec::new())),
            Token::Symbol("=" | "==") => {
                self.next();
                Ok(Requirement::new(name, Operator::In, vec![self.value()?]))
            }
            Token::Symbol("!=") => {
                self.next();
                Ok(Requirement::new(name, Operator::NotIn, vec![self.value()?]))
            }
            Token::Symbol(symbol @ (">" | "<")) => {
                self.next();
                let number = self.word()?;
                number.parse::<i64>().map_err(|_| {
                    format!("values[0][{name}]: Invalid value: {number:?}: for 'Gt', 'Lt' operators, the value must be an integer")
                })?;
                let operator = if symbol == ">" { Operator::Gt } else { Operator::Lt };
                Ok(Requirement::new(name, operator, vec![number.to_owned()]))
            }
            Token::Word("in") => {
                self.next();
                Ok(Requirement::new(name, Operator::In, self.values()?))
            }
            Token::Word("notin") => {
                self.next();
                Ok(Requirement::new(name, Operator::NotIn, self.values()?))
            }
            other => Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.text())),
        }
    }

    /// One value, which may be empty.
    fn value(&mut self) -> Result<String, String> {
        match self.peek() {
            Token::Word(word) => {
                self.next();
                value(word)
            }
            Token::End | Token::Symbol(",") => Ok(String::new()),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        if self.next() != Token::Symbol("(") {
            return Err("found something else, expected: '('".into());
        }
        let mut values = Vec::new();
        loop {
            match self.next() {
                Token::Word(word) => {
                    values.push(value(word)?);
                    match self.next() {
                        Token::Symbol(")") => return Ok(values),
                        Token::Symbol(",") => {}
                        other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
                    }
                }
                Token::Symbol(",") => values.push(String::new()),
                Token::Symbol(")") => {
                    values.push(String::new());
                    return Ok(values);
                }
                other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
            }
        }
    }
}

fn key(text: &str) -> Result<String, String> {
    match names::qualified_name(text).first() {
        None => Ok(text.to_owned()),
        Some(why) => Err(format!("key: Invalid value: {text:?}: {why}")),
    }
}

fn value(text: &str) -> Result<String, String> {
    match names::label_value(text).first() {
        None => Ok(text.to_owned()),
        Some(why) => Err(format!("values[0]: Invalid value: {text:?}: {why}")),
    }
}
