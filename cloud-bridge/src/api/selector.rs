//! Label and field selectors: parsing and matching. Pure.

use std::borrow::Cow;

use serde_json::Value;

use super::strategy::Strategy;
use super::validate::names;

/// One requirement on labels.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
    Greater(String, i64),
    Less(String, i64),
}

/// A label selector; empty matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    /// Parses `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.
    ///
    /// # Errors
    /// A text like the API server's.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Tokens { rest: text };
        let mut requirements = Vec::new();
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        loop {
            requirements.push(tokens.requirement()?);
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
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the object's labels meet every requirement.
    pub(super) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let get = |key: &String| labels[key.as_str()].as_str();
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => get(key).is_some_and(|v| values.iter().any(|x| x == v)),
            Requirement::NotIn(key, values) => get(key).is_none_or(|v| !values.iter().any(|x| x == v)),
            Requirement::Exists(key) => get(key).is_some(),
            Requirement::Absent(key) => get(key).is_none(),
            Requirement::Greater(key, n) => get(key).and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v > *n),
            Requirement::Less(key, n) => get(key).and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v < *n),
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
            return Ok(Requirement::Absent(key(self.word()?)?));
        }
        let name = key(self.word()?)?;
        match self.peek() {
            Token::End | Token::Symbol(",") => Ok(Requirement::Exists(name)),
            Token::Symbol("=" | "==") => {
                self.next();
                Ok(Requirement::In(name, vec![self.value()?]))
            }
            Token::Symbol("!=") => {
                self.next();
                Ok(Requirement::NotIn(name, vec![self.value()?]))
            }
            Token::Symbol(symbol @ (">" | "<")) => {
                self.next();
                let number = self.word()?;
                let number = number.parse().map_err(|_| {
                    format!("values[0][{name}]: Invalid value: {number:?}: for 'Gt', 'Lt' operators, the value must be an integer")
                })?;
                Ok(if symbol == ">" { Requirement::Greater(name, number) } else { Requirement::Less(name, number) })
            }
            Token::Word("in") => {
                self.next();
                Ok(Requirement::In(name, self.values()?))
            }
            Token::Word("notin") => {
                self.next();
                Ok(Requirement::NotIn(name, self.values()?))
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

/// A field selector; empty matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FieldSelector(Vec<(String, bool, String)>);

impl FieldSelector {
    /// Parses `a=b,c!=d` with `\\`, `\,` and `\=` as escapes.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        for term in split_terms(text) {
            if term.is_empty() {
                continue;
            }
            let (at, operator) =
                operator(&term).ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{term}'"))?;
            let field = term[..at].to_owned();
            let value = unescape(&term[at + operator.len()..])
                .ok_or_else(|| format!("invalid field selector: invalid escape in {term}"))?;
            terms.push((field, operator != "!=", value));
        }
        Ok(Self(terms))
    }

    /// True without terms.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first field that the kind does not support.
    pub(super) fn unsupported(&self, strategy: &dyn Strategy, namespaced: bool) -> Option<&str> {
        let known = |field: &str| {
            field == "metadata.name"
                || (field == "metadata.namespace" && namespaced)
                || strategy.field(&Value::Null, field).is_some()
        };
        self.0.iter().map(|(field, _, _)| field.as_str()).find(|field| !known(field))
    }

    /// Whether the object meets every term.
    pub(super) fn matches(&self, strategy: &dyn Strategy, object: &Value) -> bool {
        self.0.iter().all(|(field, equal, wanted)| {
            let found = match field.as_str() {
                "metadata.name" => object["metadata"]["name"].as_str().unwrap_or_default().into(),
                "metadata.namespace" => object["metadata"]["namespace"].as_str().unwrap_or_default().into(),
                other => strategy.field(object, other).unwrap_or(Cow::Borrowed("")),
            };
            (found == *wanted) == *equal
        })
    }
}

fn split_terms(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            terms.push(String::new());
            continue;
        }
        escaped = c == '\\' && !escaped;
        if let Some(last) = terms.last_mut() {
            last.push(c);
        }
    }
    terms
}

fn operator(term: &str) -> Option<(usize, &'static str)> {
    term.char_indices()
        .find_map(|(at, _)| ["!=", "==", "="].into_iter().find(|op| term[at..].starts_with(op)).map(|op| (at, op)))
}

fn unescape(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                e @ ('\\' | ',' | '=') => out.push(e),
                _ => return None,
            },
            ',' | '=' => return None,
            other => out.push(other),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::strategy::Plain;
    use super::*;

    #[test]
    fn label_operators() {
        let object = json!({"metadata": {"labels": {"a": "b", "n": "5", "k8s.io/x": ""}}});
        for yes in [
            "",
            "a=b",
            "a==b",
            "a",
            "!z",
            "a!=c",
            "z!=c",
            "a in (b,c)",
            "z notin (b)",
            "n>4",
            "n<6",
            "a=b,n,!z",
            "k8s.io/x=",
            "k8s.io/x",
            " a = b , n ",
        ] {
            assert!(LabelSelector::parse(yes).unwrap().matches(&object), "{yes}");
        }
        for no in ["a=c", "z", "!a", "a in (c)", "a notin (b)", "n>5", "a>1", "a="] {
            assert!(!LabelSelector::parse(no).unwrap().matches(&object), "{no}");
        }
        for bad in ["a=b=c", "a in b", "a,", "=b", "a b", "-a=b", "n>x"] {
            assert!(LabelSelector::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn field_terms() {
        let object = json!({"metadata": {"name": "x", "namespace": "n"}});
        for (text, expected) in
            [("metadata.name=x", true), ("metadata.name!=x", false), ("metadata.name==x,metadata.namespace=n", true)]
        {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(&Plain, &object), expected, "{text}");
        }
        assert!(FieldSelector::parse("nonsense").is_err());
        let selector = FieldSelector::parse("spec.foo=1").unwrap();
        assert_eq!(selector.unsupported(&Plain, true), Some("spec.foo"));
    }
}
