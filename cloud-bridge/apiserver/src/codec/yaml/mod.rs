//! Bodies in YAML, as Kubernetes reads them: the first document as JSON, with duplicate keys reported by their lines.
//! Depth and memory are limited as for JSON. `scalar` resolves plain words.

mod scalar;
pub(crate) mod write;

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use serde_json::{Map, Value};

use super::parse::{self, COMPLAINTS_MAX, DEPTH_MAX, TOO_MANY, shown_path};

/// Memory of one value, and of one field, approximately.
const VALUE_COST: usize = 64;
const FIELD_COST: usize = 128;
/// The longest key without quotes and without `?` before it.
const KEY_MAX: usize = 16 * 1024;

/// A body that was read.
#[derive(Debug, PartialEq)]
pub(crate) struct Document {
    pub(crate) value: Value,
    /// Errors of strict parsing about duplicate keys. The last one counts.
    pub(crate) twice: Vec<String>,
}

impl Document {
    /// Reads a body. JSON is YAML, too, and read much faster.
    ///
    /// # Errors
    /// Why it cannot be read, in the words that clients know.
    #[cfg(test)]
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        Self::read_within(bytes, parse::MEMORY_MAX)
    }

    /// Reads a body whose values take at most `memory` bytes.
    ///
    /// # Errors
    /// Same as `read`, and `TOO_MANY` if it takes more.
    pub(crate) fn read_within(bytes: &[u8], memory: usize) -> Result<Self, String> {
        match parse::parse_within(bytes, memory) {
            Ok((value, duplicates)) if duplicates.is_empty() => return Ok(Self { value, twice: Vec::new() }),
            Err(error) if error.to_string().starts_with(TOO_MANY) => return Err(TOO_MANY.to_owned()),
            _ => {}
        }
        let text = std::str::from_utf8(bytes).map_err(|_| refuse("invalid UTF-8"))?;
        let options = granit_parser::options! {
            emit_comments: false,
            simple_key_max_lookahead: KEY_MAX,
            flow_nesting_limit: DEPTH_MAX,
            block_nesting_limit: DEPTH_MAX,
        };
        let events = Parser::new_from_str_with_options(text, options);
        let mut reader = Reader { events, left: memory, anchors: HashMap::new(), twice: Vec::new() };
        let value = reader.document()?;
        Ok(Self { value, twice: reader.twice })
    }

    /// The duplicate keys as one error.
    pub(crate) fn strict(&self) -> Result<(), String> {
        if self.twice.is_empty() {
            return Ok(());
        }
        Err(refuse(&format!("unmarshal errors:\n  {}", self.twice.join("\n  "))))
    }
}

fn refuse(why: &str) -> String {
    format!("error converting YAML to JSON: yaml: {why}")
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    /// Memory that the body may still use: an alias of a few letters may stand for everything before it.
    left: usize,
    /// Values by the number of their anchor, with their cost.
    anchors: HashMap<usize, (Value, usize)>,
    twice: Vec<String>,
}

impl Reader<'_> {
    fn next(&mut self) -> Result<(Event<'static>, Span), String> {
        match self.events.next_event() {
            Some(Ok((event, span))) => Ok((owned(event), span)),
            Some(Err(error)) => Err(refuse(&format!("line {}: {}", error.marker().line(), error.info()))),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn charge(&mut self, cost: usize) -> Result<(), String> {
        self.left = self.left.checked_sub(cost).ok_or_else(|| refuse("document contains excessive aliasing"))?;
        Ok(())
    }

    fn document(&mut self) -> Result<Value, String> {
        loop {
            match self.next()? {
                (Event::StreamStart | Event::DocumentStart(..), _) => {}
                (Event::StreamEnd | Event::DocumentEnd, _) => return Ok(Value::Null),
                (event, span) => return self.node(event, span, 0).map(|(value, _)| value),
            }
        }
    }

    /// The node that begins with this event, and the line where it does.
    fn node(&mut self, event: Event<'static>, span: Span, depth: usize) -> Result<(Value, usize), String> {
        let (line, before) = (span.start.line(), self.left);
        if depth > DEPTH_MAX {
            return Err(refuse("exceeded max depth"));
        }
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.charge(VALUE_COST + text.len())?;
                let tag = tag.as_deref().map(|tag| format!("{}{}", tag.handle(), tag.suffix()));
                let value = scalar::resolve(&text, style == ScalarStyle::Plain, tag.as_deref());
                (value.map_err(|why| refuse(&format!("line {line}: {why}")))?, anchor)
            }
            Event::SequenceStart(_, anchor, _) => (self.sequence(depth)?, anchor),
            Event::MappingStart(_, anchor, _) => (self.mapping(depth)?, anchor),
            Event::Alias(id) => {
                let unknown = || refuse(&format!("line {line}: anchor value contains itself"));
                let cost = self.anchors.get(&id).map(|(_, cost)| *cost).ok_or_else(unknown)?;
                self.charge(cost)?;
                (self.anchors.get(&id).map(|(value, _)| value.clone()).unwrap_or_default(), 0)
            }
            _ => return Err(refuse(&format!("line {line}: did not find expected node content"))),
        };
        if anchor > 0 {
            // Kept beside the document: counted twice.
            let cost = before.saturating_sub(self.left);
            self.charge(cost)?;
            self.anchors.insert(anchor, (value.clone(), cost));
        }
        Ok((value, line))
    }

    fn sequence(&mut self, depth: usize) -> Result<Value, String> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items.into()),
                (event, span) => items.push(self.node(event, span, depth + 1)?.0),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, String> {
        let mut map = Map::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                return Ok(map.into());
            }
            let merges = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<");
            let (key, line) = self.node(event, span, depth + 1)?;
            let key = scalar::key(&key).map_err(|why| refuse(&format!("line {line}: {why}")))?;
            self.charge(FIELD_COST + key.len())?;
            let (event, span) = self.next()?;
            let (value, line) = self.node(event, span, depth + 1)?;
            if merges {
                merge(&mut map, value).map_err(|why| refuse(&format!("line {line}: {why}")))?;
                continue;
            }
            if map.contains_key(&key) && self.twice.len() < COMPLAINTS_MAX {
                self.twice.push(format!("line {line}: key {:?} already set in map", shown_path(&key)));
            }
            map.insert(key, value);
        }
    }
}

/// `<<`: the fields of another map, or of several of which the first counts most.
fn merge(map: &mut Map<String, Value>, value: Value) -> Result<(), &'static str> {
    let maps = match value {
        Value::Array(maps) => maps,
        one => vec![one],
    };
    for one in maps.into_iter().rev() {
        let Value::Object(fields) = one else { return Err("map merge requires map or sequence of maps as the value") };
        map.extend(fields);
    }
    Ok(())
}

/// The event with owned text, because the parser continues while it is used.
fn owned(event: Event<'_>) -> Event<'static> {
    match event {
        Event::Scalar(text, style, anchor, tag) => Event::Scalar(
            text.into_owned().into(),
            style,
            anchor,
            tag.map(|tag| std::borrow::Cow::Owned(tag.into_owned())),
        ),
        Event::SequenceStart(style, anchor, _) => Event::SequenceStart(style, anchor, None),
        Event::MappingStart(style, anchor, _) => Event::MappingStart(style, anchor, None),
        Event::Alias(id) => Event::Alias(id),
        Event::SequenceEnd => Event::SequenceEnd,
        Event::MappingEnd => Event::MappingEnd,
        Event::DocumentStart(explicit, version) => Event::DocumentStart(explicit, version),
        Event::DocumentEnd => Event::DocumentEnd,
        Event::StreamEnd => Event::StreamEnd,
        _ => Event::StreamStart,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Value {
        Document::read(text.as_bytes()).unwrap().value
    }

    fn error(text: &str) -> String {
        Document::read(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn manifests_are_read() {
        let text = "\napiVersion: v1\nkind: ConfigMap # a comment\nmetadata:\n  name: c\n  labels: {a: \"1\", b: 'x: y'}\ndata:\n  text: |\n    one\n    two\n  folded: >-\n    one\n    two\n  empty:\nlist:\n- 1\n- name: x\n  on: yes\n---\nsecond: 1\n";
        let expected = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "c", "labels": {"a": "1", "b": "x: y"}},
            "data": {"text": "one\ntwo\n", "folded": "one two", "empty": null},
            "list": [1, {"name": "x", "true": true}]});
        assert_eq!(read(text), expected);
        assert_eq!(read("# nothing\n"), Value::Null);
        assert_eq!(read(r#"{"a": [1, {"b": null}]}"#), json!({"a": [1, {"b": null}]}));
    }

    #[test]
    fn keys_that_stand_twice_are_told_by_line() {
        let document = Document::read(b"\na: 1\nspec:\n  b: 1\n  b: 2\na: 3\n").unwrap();
        assert_eq!(document.value, json!({"a": 3, "spec": {"b": 2}}));
        assert_eq!(document.twice, ["line 5: key \"b\" already set in map", "line 6: key \"a\" already set in map"]);
        let told = document.strict().unwrap_err();
        assert!(told.starts_with("error converting YAML to JSON: yaml: unmarshal errors:\n  line 5: key"), "{told}");
        let json = Document::read(br#"{"a": 1, "a": 2}"#).unwrap();
        assert_eq!(json.twice, ["line 1: key \"a\" already set in map"]);
        assert_eq!(Document::read(b"a: 1").unwrap().strict(), Ok(()));
    }

    #[test]
    fn anchors_and_merges() {
        let text = "base: &b {x: 1, z: 2}\none:\n  <<: *b\n  z: 3\ntwo: *b\nthree:\n  <<: [{x: 7}, *b]\n";
        let document = read(text);
        assert_eq!(document["one"], json!({"x": 1, "z": 3}));
        assert_eq!((&document["two"], &document["three"]), (&json!({"x": 1, "z": 2}), &json!({"x": 7, "z": 2})));
        assert!(error("a: &a [*a]").contains("itself"));
        assert!(error("a: *nobody").starts_with("error converting YAML to JSON: yaml: line 1: "));
    }

    #[test]
    fn depth_and_memory_are_bounded() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let before = format!("*a{}", level - 1);
            bomb += &format!("a{level}: &a{level} [{}]\n", vec![before; 10].join(", "));
        }
        assert!(error(&bomb).ends_with("document contains excessive aliasing"));
        assert!(Document::read(format!("a: {}", "[".repeat(500)).as_bytes()).is_err());
        let nested: String = (0..200).map(|n| format!("{}k:\n", " ".repeat(n))).collect();
        assert!(Document::read(nested.as_bytes()).is_err());
        assert!(error("a: [1").contains("line"));
        assert!(Document::read(b"a: \xff").is_err());
    }
}
