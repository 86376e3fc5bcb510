//! Field selectors.

use std::borrow::Cow;

use serde_json::Value;

use super::SIZE_MAX;

/// A field selector; empty matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<(String, bool, String)>);

impl FieldSelector {
    /// Parses `a=b,c!=d` with `\\`, `\,` and `\=` as escapes. Terms are in their order by text (K8s apimachinery
    /// pkg/fields/selector.go), each once.
    ///
    /// # Errors
    /// A text like the API server's, or that the selector is too large.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        let mut texts = split_terms(text);
        texts.sort_unstable();
        texts.dedup();
        if texts.len() > SIZE_MAX {
            return Err(format!("the selector has {} terms, more than {SIZE_MAX}", texts.len()));
        }
        for term in texts {
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
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it asks for nothing but metadata.
    pub fn is_of_metadata(&self) -> bool {
        self.0.iter().all(|(field, _, _)| field.starts_with("metadata."))
    }

    /// The name that a term demands of an object, if any.
    pub fn name(&self) -> Option<&str> {
        self.wanted("metadata.name")
    }

    /// The value that a term demands of a field, if any.
    pub fn wanted(&self, field: &str) -> Option<&str> {
        let named = |(name, equal, _): &&(String, bool, String)| *equal && name == field;
        self.0.iter().find(named).map(|(_, _, value)| value.as_str())
    }

    /// The first field that the kind does not support; `field` reads the kind's own fields.
    pub fn unsupported(
        &self,
        namespaced: bool,
        field: impl for<'a> Fn(&'a Value, &str) -> Option<Cow<'a, str>>,
    ) -> Option<&str> {
        let known = |label: &str| {
            label == "metadata.name"
                || (label == "metadata.namespace" && namespaced)
                || field(&Value::Null, label).is_some()
        };
        self.0.iter().map(|(label, _, _)| label.as_str()).find(|label| !known(label))
    }

    /// False if the object with this body, JSON as stored, cannot meet every term; found without parsing. A node that
    /// reconnects lists its pods, and parsing all others would take half a second for ten thousand.
    pub fn may_match(&self, body: &[u8]) -> bool {
        self.0.iter().all(|(field, equal, wanted)| {
            // What JSON writes as it is.
            let plain = !wanted.is_empty() && wanted.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
            let telling = *equal && field == "spec.nodeName" && plain;
            !telling || memchr::memmem::find(body, format!("\"nodeName\":\"{wanted}\"").as_bytes()).is_some()
        })
    }

    /// Whether the object meets every term; `field` reads the fields of its kind.
    pub fn matches<'a>(&self, object: &'a Value, field: impl Fn(&'a Value, &str) -> Option<Cow<'a, str>>) -> bool {
        self.0.iter().all(|(label, equal, wanted)| {
            let found = match label.as_str() {
                "metadata.name" => object["metadata"]["name"].as_str().unwrap_or_default().into(),
                "metadata.namespace" => object["metadata"]["namespace"].as_str().unwrap_or_default().into(),
                other => field(object, other).unwrap_or(Cow::Borrowed("")),
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
