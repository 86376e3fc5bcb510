//! Answers in YAML, in the block form of sigs.k8s.io/yaml: text of JSON is read once and written value by value, so that
//! no tree of it is ever in memory. Pure.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use super::scalar;

/// Bytes that the block form may take beyond twice those of the JSON: indentation may be most of it.
const EXTRA: usize = 64 * 1024;
/// Longer keys are marked by `?`: parsers look no further than 1024 characters for the colon of others.
const KEY_MAX: usize = 128;

/// The JSON in block form; `None` where that would be far longer, or nests deeper than it can be read. JSON itself is YAML,
/// too.
pub fn from_json(json: &[u8]) -> Option<Vec<u8>> {
    let most = json.len().saturating_mul(2).saturating_add(EXTRA);
    let mut out = Out { text: Vec::with_capacity(json.len()), most };
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    Node { out: &mut out, lead: Lead::Start, column: 0 }.deserialize(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    Some(out.text)
}

/// What stands before a value on its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lead {
    Start,
    Key,
    Dash,
}

struct Out {
    text: Vec<u8>,
    most: usize,
}

impl Out {
    fn put<E: Error>(&mut self, text: &str) -> Result<(), E> {
        if self.text.len() + text.len() > self.most {
            return Err(E::custom("the block form is too long"));
        }
        self.text.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn pad<E: Error>(&mut self, column: usize) -> Result<(), E> {
        self.put(&" ".repeat(column))
    }
}

/// A value to write; `column` is that of the key or dash before it.
struct Node<'a> {
    out: &'a mut Out,
    lead: Lead,
    column: usize,
}

impl Node<'_> {
    fn scalar<E: Error>(self, text: &str) -> Result<(), E> {
        if self.lead != Lead::Start {
            self.out.put(" ")?;
        }
        self.out.put(text)?;
        self.out.put("\n")
    }

    /// Begins the line of an entry of a map or list at this column; the first one behind a dash stays on the dash's.
    fn line<E: Error>(&mut self, first: bool, column: usize) -> Result<(), E> {
        match (first, self.lead) {
            (true, Lead::Dash) => self.out.put(" "),
            (true, Lead::Key) => {
                self.out.put("\n")?;
                self.out.pad(column)
            }
            _ => self.out.pad(column),
        }
    }

    /// The lines of a text, as they are.
    fn literal<E: Error>(self, text: &str) -> Result<(), E> {
        let chomping = match text {
            text if !text.ends_with('\n') => "-",
            text if text.ends_with("\n\n") => "+",
            _ => "",
        };
        self.out.put(" |")?;
        self.out.put(chomping)?;
        self.out.put("\n")?;
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            if !line.is_empty() {
                self.out.pad(self.column + 2)?;
                self.out.put(line)?;
            }
            self.out.put("\n")?;
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<(), E> {
        self.scalar(if v { "true" } else { "false" })
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<(), E> {
        self.scalar(&v.to_string())
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<(), E> {
        self.scalar(&v.to_string())
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<(), E> {
        self.scalar(&Number::from_f64(v).map_or_else(|| "null".to_owned(), |number| number.to_string()))
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.scalar("null")
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<(), E> {
        if self.lead != Lead::Start && is_literal(v) { self.literal(v) } else { self.scalar(&flow(v)) }
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        // Dashes stand below the first letter of their key.
        let column = if self.lead == Lead::Dash { self.column + 2 } else { self.column };
        let mut first = true;
        loop {
            // Removes the text before an item if the sequence is empty.
            let length = self.out.text.len();
            self.line(first, column)?;
            self.out.put("-")?;
            if seq.next_element_seed(Node { out: self.out, lead: Lead::Dash, column })?.is_none() {
                self.out.text.truncate(length);
                break;
            }
            first = false;
        }
        if first { self.scalar("[]") } else { Ok(()) }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let column = if self.lead == Lead::Start { 0 } else { self.column + 2 };
        let mut first = true;
        while let Some(key) = map.next_key::<String>()? {
            self.line(first, column)?;
            first = false;
            if key.len() > KEY_MAX {
                self.out.put("? ")?;
                self.out.put(&flow(&key))?;
                self.out.put("\n")?;
                self.out.pad(column)?;
            } else {
                self.out.put(&flow(&key))?;
            }
            self.out.put(":")?;
            map.next_value_seed(Node { out: self.out, lead: Lead::Key, column })?;
        }
        if first { self.scalar("{}") } else { Ok(()) }
    }
}

/// Characters that YAML takes only escaped: control characters, line breaks other than `\n`, and noncharacters.
fn escaped(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Whether a text is best told line by line. The first line says how far all are indented, so it begins with no space.
fn is_literal(text: &str) -> bool {
    text.contains('\n')
        && !text.starts_with([' ', '\n', '\t'])
        && text.chars().all(|c| matches!(c, '\n' | '\t') || !escaped(c))
}

/// A text on one line: plain if no parser can read it as another type, else in double quotes.
fn flow(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '_'))
        && text.bytes().all(|b| matches!(b, b' '..=b'~'))
        && !text.ends_with([':', ' '])
        && !text.contains(": ")
        && !text.contains(" #")
        && scalar::resolve(text, true, None).is_ok_and(|value| matches!(value, Value::String(_)));
    if plain { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if escaped(c) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::codec::yaml::Document;

    fn written(value: &Value) -> String {
        String::from_utf8(from_json(value.to_string().as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn objects_are_written_in_block_form() {
        let object = json!({"apiVersion": "v1", "data": {"a.txt": "one\n\n  two\n", "b": "yes", "c": "1", "d": "x: y"},
            "empty": {}, "list": [{"image": "busybox", "name": "c", "args": []}, [1, ["x"]], null], "n": -1.5});
        let expected = "apiVersion: v1\ndata:\n  a.txt: |\n    one\n\n      two\n  b: \"yes\"\n  c: \"1\"\n  d: \"x: y\"\nempty: {}\n\
            list:\n- args: []\n  image: busybox\n  name: c\n- - 1\n  - - x\n- null\nn: -1.5\n";
        let sorted = written(&object);
        assert_eq!(Document::read(sorted.as_bytes()).unwrap().value, object);
        assert_eq!(sorted.lines().count(), expected.lines().count(), "{sorted}");
        assert!(sorted.contains("a.txt: |\n    one\n\n      two\n") && sorted.contains("- - 1\n  - - x\n"), "{sorted}");
    }

    #[test]
    fn long_form_gives_way_to_json() {
        let deep = "[".repeat(90) + &"[0],".repeat(100_000) + "0" + &"]".repeat(90);
        assert_eq!(from_json(deep.as_bytes()), None);
        assert_eq!(from_json("[".repeat(1000).as_bytes()), None);
    }

    fn values() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            "[ -~\n\t]{0,12}",
            "\\PC{0,6}",
            ".{0,6}",
            "(yes|null|~|1e3|0x1|2020-01-01|1:30|---|- a|a: b|#|<<|=|\\?)",
            "k{120,140}",
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            text.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::vec((text.clone(), inner), 0..5)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(value in values()) {
            let text = written(&value);
            let read = Document::read(text.as_bytes());
            prop_assert_eq!(read.map(|document| document.value), Ok(value), "{}", text);
        }
    }
}
