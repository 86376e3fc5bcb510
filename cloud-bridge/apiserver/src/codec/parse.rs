//! From the bytes of a body to JSON, within bounds: depth, memory and the number of complaints are limited here, so
//! that nothing later has to fear the text of a stranger. Knows no kinds.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// How deep a body may nest. Stored objects are read with a limit of 128, and managedFields lie a few levels below
/// the fields that they are about.
pub(crate) const DEPTH_MAX: usize = 96;
/// Maximum memory of the values of one body in bytes, approximately: a text of 3 MiB can demand a hundred times its
/// size.
pub(crate) const MEMORY_MAX: usize = 48 * 1024 * 1024;
/// Same for a body of a kind that tenants write: the maximum of an object (`bounds`), plus its managedFields.
pub(crate) const TENANT_MEMORY_MAX: usize = 12 * 1024 * 1024;
/// Memory of one value, and of one object with the capacity for its first fields and its typed form.
pub(crate) const VALUE_COST: usize = 32;
pub(crate) const OBJECT_COST: usize = 640;
pub(crate) const FIELD_COST: usize = 64;
/// Error of a body whose values exceed the memory limit.
pub(crate) const TOO_MANY: &str = "the body has too many values";
/// How many complaints about the fields of one body are kept, as strict decoding of the API server has it.
pub(crate) const COMPLAINTS_MAX: usize = 100;
/// Maximum length of a path in messages.
const PATH_MAX: usize = 512;

/// Parses JSON, naming every key that an object has twice (the last one counts, as in Go).
///
/// # Errors
/// The JSON error, or that the body is beyond a bound.
pub(crate) fn parse(bytes: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    parse_within(bytes, MEMORY_MAX)
}

/// Parses JSON whose values take at most `memory` bytes.
///
/// # Errors
/// Same as `parse`.
pub(crate) fn parse_within(bytes: &[u8], memory: usize) -> Result<(Value, Vec<String>), serde_json::Error> {
    let mut reading = Reading { budget: Budget::of(memory), ..Reading::default() };
    let value = read(bytes, &mut reading)?;
    Ok((value, reading.duplicates))
}

/// Parses JSON that is part of another body, and charges it to that body's budget.
///
/// # Errors
/// Same as [`parse`].
pub(crate) fn parse_part(bytes: &[u8], budget: &mut Budget) -> Result<Value, serde_json::Error> {
    let mut reading = Reading { budget: std::mem::take(budget), ..Reading::default() };
    let value = read(bytes, &mut reading);
    *budget = reading.budget;
    value
}

/// Positions of these paths in the text, by the order of its fields.
pub(crate) fn places(bytes: &[u8], wanted: &[String]) -> HashMap<String, usize> {
    let mut reading = Reading { wanted: wanted.iter().cloned().collect(), ..Reading::default() };
    let _ = read(bytes, &mut reading);
    reading.places
}

/// A JSON error in Go's words where they are well known.
pub(crate) fn reason(error: &serde_json::Error) -> String {
    if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() }
}

/// A path in the format of messages.
pub(crate) fn shown_path(path: &str) -> String {
    if path.len() <= PATH_MAX {
        return path.to_owned();
    }
    let end = (0..=PATH_MAX).rev().find(|at| path.is_char_boundary(*at)).unwrap_or_default();
    format!("{}...", &path[..end])
}

fn read(bytes: &[u8], reading: &mut Reading) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Node { reading, depth: 0 }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Memory that the values of one body may still ask for, whatever its encoding.
#[derive(Debug)]
pub(crate) struct Budget(usize);

impl Default for Budget {
    fn default() -> Self {
        Self(MEMORY_MAX)
    }
}

impl Budget {
    /// A budget of so much memory.
    pub(crate) fn of(memory: usize) -> Self {
        Self(memory)
    }

    /// Charges for a value and the text that it holds.
    ///
    /// # Errors
    /// The body has too many values.
    pub(crate) fn value(&mut self, text: usize) -> Result<(), Exhausted> {
        self.charge(VALUE_COST + text)
    }

    /// Charges for an object.
    ///
    /// # Errors
    /// See [`Budget::value`].
    pub(crate) fn object(&mut self) -> Result<(), Exhausted> {
        self.charge(OBJECT_COST)
    }

    /// Charges for a field with its name.
    ///
    /// # Errors
    /// See [`Budget::value`].
    pub(crate) fn field(&mut self, name: usize) -> Result<(), Exhausted> {
        self.charge(FIELD_COST + name)
    }

    fn charge(&mut self, cost: usize) -> Result<(), Exhausted> {
        self.0 = self.0.checked_sub(cost).ok_or(Exhausted)?;
        Ok(())
    }
}

/// The values of a body need more memory than one body may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{TOO_MANY}")]
pub(crate) struct Exhausted;

/// State of parsing a body.
#[derive(Default)]
struct Reading {
    path: String,
    budget: Budget,
    duplicates: Vec<String>,
    wanted: HashSet<String>,
    places: HashMap<String, usize>,
    fields: usize,
}

impl Reading {
    fn field(&mut self) {
        self.fields += 1;
        // No caller wants a path beyond the bound; looking it up would read it again for each field.
        if !self.wanted.is_empty() && self.path.len() <= PATH_MAX && self.wanted.contains(&self.path) {
            self.places.entry(self.path.clone()).or_insert(self.fields);
        }
    }

    fn twice(&mut self) {
        if self.duplicates.len() < COMPLAINTS_MAX {
            self.duplicates.push(shown_path(&self.path));
        }
    }
}

struct Node<'a> {
    reading: &'a mut Reading,
    depth: usize,
}

impl Node<'_> {
    fn below<E: Error>(&mut self) -> Result<usize, E> {
        if self.depth >= DEPTH_MAX {
            return Err(E::custom("exceeded max depth"));
        }
        Ok(self.depth + 1)
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.reading.budget.value(0).map_err(Error::custom)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Value, E> {
        self.reading.budget.charge(v.len()).map_err(Error::custom)?;
        Ok(v.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Value, A::Error> {
        let depth = self.below()?;
        let mut items = Vec::new();
        let length = self.reading.path.len();
        loop {
            self.reading.path.push_str(&format!("[{}]", items.len()));
            let item = seq.next_element_seed(Node { reading: self.reading, depth })?;
            self.reading.path.truncate(length);
            match item {
                Some(item) => items.push(item),
                None => return Ok(items.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let depth = self.below()?;
        // An empty one allocates nothing; managedFields consist of them.
        self.reading.budget.field(0).map_err(Error::custom)?;
        let mut map = Map::new();
        let mut told = HashSet::new();
        let length = self.reading.path.len();
        while let Some(key) = access.next_key::<String>()? {
            self.reading.budget.field(key.len()).map_err(Error::custom)?;
            if map.is_empty() {
                self.reading.budget.object().map_err(Error::custom)?;
            }
            if length > 0 {
                self.reading.path.push('.');
            }
            self.reading.path.push_str(&key);
            self.reading.field();
            let value = access.next_value_seed(Node { reading: self.reading, depth })?;
            if map.contains_key(&key) && told.insert(key.clone()) {
                self.reading.twice();
            }
            map.insert(key, value);
            self.reading.path.truncate(length);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::bounds;
    use super::*;

    fn error(body: &str) -> String {
        parse(body.as_bytes()).map_or_else(|e| e.to_string(), |(value, _)| panic!("{value} was taken"))
    }

    #[test]
    fn duplicates_are_named_once() {
        let (value, duplicates) = parse(br#"{"a":{"b":1,"b":2,"b":3},"c":[{"d":1,"d":1}]}"#).unwrap();
        assert_eq!(value["a"]["b"], 3);
        assert_eq!(duplicates, ["a.b", "c[0].d"]);
        assert!(parse(b"{} x").is_err());
    }

    #[test]
    fn depth_and_memory_are_bounded() {
        let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(parse(nested(DEPTH_MAX).as_bytes()).is_ok());
        assert!(error(&nested(DEPTH_MAX + 1)).starts_with("exceeded max depth"));
        assert!(error(&nested(10_000)).starts_with("exceeded max depth"));
        // Each of these is below the limit of a request's body, and hundreds of megabytes as values.
        for element in [r#"{"":0},"#, "{},", r#"{"a":{}},"#] {
            let body = format!("[{}0]", element.repeat(3_000_000 / element.len()));
            assert!(error(&body).starts_with("the body has too many values"), "{element}");
        }
        assert!(parse(format!("\"{}\"", "x".repeat(3_000_000)).as_bytes()).is_ok());
    }

    #[test]
    fn bodies_for_tenants_kinds_have_fewer_values() {
        let fields = |count: usize| {
            let fields: Vec<String> = (0..count).map(|at| format!("\"k{at}\":\"\"")).collect();
            parse_within(format!("{{{}}}", fields.join(",")).as_bytes(), TENANT_MEMORY_MAX).map(drop)
        };
        assert!(fields(bounds::VALUES_MAX).is_ok());
        let owned = |count: usize| (0..count).map(|at| format!("\"f:k{at}\":{{}}")).collect::<Vec<_>>().join(",");
        let with_owners = format!("{{\"data\":{{{}}},\"owned\":{{{}}}}}", owned(8_000), owned(40_000));
        assert!(parse_within(with_owners.as_bytes(), TENANT_MEMORY_MAX).is_ok(), "the most that an object may have");
        assert!(fields(400_000).unwrap_err().to_string().starts_with(TOO_MANY));
    }

    #[test]
    fn complaints_are_few_and_short() {
        let twice: String = (0..1000).map(|n| format!("\"k{n}\":0,\"k{n}\":1,")).collect();
        let body = format!("{{\"{}\":{{{}\"z\":0}}}}", "x".repeat(100_000), twice);
        let (_, duplicates) = parse(body.as_bytes()).unwrap();
        assert_eq!(duplicates.len(), COMPLAINTS_MAX);
        assert!(duplicates.iter().all(|path| path.len() < 600));
    }

    #[test]
    fn places_follow_the_text() {
        let wanted = ["b.c".to_owned(), "a".to_owned(), "none".to_owned()];
        let found = places(br#"{"b":{"x":0,"c":1},"a":2}"#, &wanted);
        assert!(found["b.c"] < found["a"] && found.len() == 2);
    }
}
