//! Reads the unions in schemas of custom resources: fields that hold a schema or something simpler, as JSON has them
//! (apiextensions/v1 marshal.go).

use serde_json::Value;

use super::wire::{self, Field, Payload};
use super::{DecodeError, Reader, bytes, number, text};
use crate::codec::messages;

const SCHEMA: &str = "apiextensions.JSONSchemaProps";

impl Reader {
    /// A schema or a boolean (`x`), or schemas (`l`), or names (`w`).
    pub(super) fn union(&mut self, kind: &str, message: &[u8], depth: usize) -> Result<Value, DecodeError> {
        let (mut allows, mut schema, mut several) = (false, None, Vec::new());
        for field in wire::fields(message) {
            let Field { number: place, payload } = field?;
            self.0.value(0)?;
            match (kind, place) {
                ("x", 1) => allows = number(payload)? != 0,
                ("x", 2) | ("l" | "w", 1) => schema = Some(self.schema(payload, depth)?),
                ("l", 2) => several.push(self.schema(payload, depth)?),
                ("w", 2) => several.push(text(payload)?.into()),
                _ => {}
            }
        }
        Ok(match schema {
            _ if !several.is_empty() => several.into(),
            Some(schema) => schema,
            None if kind == "x" => allows.into(),
            None => Value::Null,
        })
    }

    fn schema(&mut self, payload: Payload<'_>, depth: usize) -> Result<Value, DecodeError> {
        let message = messages::message(SCHEMA).ok_or(DecodeError::Malformed)?;
        self.read(message, bytes(payload)?, depth + 1).map(Value::Object)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::DecodeError;
    use super::super::tests::decode;
    use super::super::tests::{body, field};
    use super::*;

    /// A definition whose only version has this schema.
    fn definition(schema: &[u8]) -> Result<Value, DecodeError> {
        let validation = field(4, &field(1, schema));
        let spec = [field(1, b"x.io"), field(7, &[field(1, b"v1"), validation].concat())].concat();
        let decoded = decode(&body("apiextensions.k8s.io/v1", "CustomResourceDefinition", &field(2, &spec)))?;
        Ok(decoded["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone())
    }

    fn property(name: &str, schema: &[u8]) -> Vec<u8> {
        // Field numbers beyond 15 take two bytes.
        let entry = [field(1, name.as_bytes()), field(2, schema)].concat();
        [vec![0xea, 0x01, u8::try_from(entry.len()).expect("short")], entry].concat()
    }

    fn long(number: u8, content: &[u8]) -> Vec<u8> {
        let key = u16::from(number) << 3 | 2;
        let low = u8::try_from(key & 0x7f).expect("seven bits") | 0x80;
        let high = u8::try_from(key >> 7).expect("a small number");
        [vec![low, high, u8::try_from(content.len()).expect("short")], content.to_vec()].concat()
    }

    #[test]
    fn schemas_are_read_with_their_unions() {
        let text = field(5, b"string");
        let items = [field(5, b"array"), long(24, &field(1, &text))].concat();
        let tuple = [field(5, b"array"), long(24, &[field(2, &text), field(2, &text)].concat())].concat();
        let open = [field(5, b"object"), long(30, &[8, 1])].concat();
        let closed = [field(5, b"object"), long(30, &[])].concat();
        let map = [field(5, b"object"), long(30, &field(2, &text))].concat();
        let whole = [vec![9 << 3 | 1], 7f64.to_le_bytes().to_vec()].concat();
        let half = [vec![11 << 3 | 1], 0.5f64.to_le_bytes().to_vec()].concat();
        let default = [text.clone(), field(8, &field(1, b"\"A\""))].concat();
        let schema: Vec<Vec<u8>> = [
            ("items", items),
            ("tuple", tuple),
            ("open", open),
            ("closed", closed),
            ("map", map),
            ("range", [whole, half].concat()),
            ("default", default),
            ("empty", Vec::new()),
        ]
        .iter()
        .map(|(name, schema)| property(name, schema))
        .collect();
        let expected = json!({"type": "object", "properties": {
            "items": {"type": "array", "items": {"type": "string"}},
            "tuple": {"type": "array", "items": [{"type": "string"}, {"type": "string"}]},
            "open": {"type": "object", "additionalProperties": true},
            "closed": {"type": "object", "additionalProperties": false},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "range": {"maximum": 7, "minimum": 0.5},
            "default": {"type": "string", "default": "A"},
            "empty": {},
        }});
        assert_eq!(definition(&[field(5, b"object"), schema.concat()].concat()), Ok(expected));
    }

    #[test]
    fn dependencies_are_names_or_a_schema() {
        let entry = |name: &[u8], value: &[u8]| long(32, &[field(1, name), field(2, value)].concat());
        let schema = [entry(b"a", &[field(2, b"b"), field(2, b"c")].concat()), entry(b"d", &field(1, &field(5, b"x")))];
        let expected = json!({"dependencies": {"a": ["b", "c"], "d": {"type": "x"}}});
        assert_eq!(definition(&schema.concat()), Ok(expected));
    }

    #[test]
    fn schemas_without_end_are_refused() {
        let mut schema = field(5, b"string");
        for _ in 0..super::super::DEPTH_MAX {
            let length = u8::try_from(schema.len() & 0x7f).expect("seven bits") | 0x80;
            let high = u8::try_from(schema.len() >> 7).expect("a small number");
            // `not`, with a length of two bytes.
            schema = [vec![0xe2, 0x01, length, high], schema].concat();
        }
        let name = messages::message(SCHEMA).expect("the message");
        assert_eq!(Reader::default().read(name, &schema, 1), Err(DecodeError::Malformed));
        assert!(Reader::default().read(name, &schema, 0).is_ok());
    }
}
