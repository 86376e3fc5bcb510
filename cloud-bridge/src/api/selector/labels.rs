//! Label selectors.

use serde_json::Value;

use crate::api::validate::names;

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
pub(crate) struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    /// Parses `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.
    ///
    /// # Errors
    /// A text like the API server's.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
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
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the object's labels meet every requirement.
    pub(crate) fn matches(&self, object: &Value) -> bool {
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
