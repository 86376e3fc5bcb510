//! The protobuf encoding of Kubernetes (`application/vnd.kubernetes.protobuf`): request bodies, which typed Go clients,
//! including kubectl's `create`, send in it without discovery, and answers for clients that accept nothing else. Pure.

mod encode;
mod fields;
mod schema;
#[cfg(test)]
mod table;
mod wire;

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::messages::{self, Message};
use super::parse::{self, Budget, Exhausted};
pub(crate) use encode::{encode, frame};
use wire::{Field, Payload};

/// The content type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

const MAGIC: &[u8] = b"k8s\0";
/// Schemas of custom resources nest, and each of their levels is two in JSON: `parse` would refuse deeper ones.
const DEPTH_MAX: usize = 48;

/// Why a body could not be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum DecodeError {
    #[error("the body does not begin as protobuf of Kubernetes does")]
    NoMagic,
    #[error("no protobuf form of {api_version}, Kind={kind} is known")]
    UnknownKind { api_version: String, kind: String },
    #[error("the protobuf body ends or repeats itself where it must not")]
    Malformed,
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}

/// The object of a body, as in JSON. Its values may take `memory` bytes.
///
/// # Errors
/// See `DecodeError`.
pub(crate) fn decode_within(body: &[u8], memory: usize) -> Result<Value, DecodeError> {
    let body = body.strip_prefix(MAGIC).ok_or(DecodeError::NoMagic)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in wire::fields(body) {
        match field? {
            Field { number: 1, payload: Payload::Bytes(meta) } => {
                for field in wire::fields(meta) {
                    match field? {
                        Field { number: 1, payload } => api_version = text(payload)?.to_owned(),
                        Field { number: 2, payload } => kind = text(payload)?.to_owned(),
                        _ => {}
                    }
                }
            }
            Field { number: 2, payload: Payload::Bytes(bytes) } => raw = bytes,
            _ => {}
        }
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let Some(message) = messages::message(&messages::message_name(group, version, &kind)) else {
        return Err(DecodeError::UnknownKind { api_version, kind });
    };
    let mut object = Reader(Budget::of(memory)).read(message, raw, 0)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

/// Reads the messages of one body within its budget.
#[derive(Default)]
struct Reader(Budget);

impl Reader {
    fn read(&mut self, message: Message, bytes: &[u8], depth: usize) -> Result<Map<String, Value>, DecodeError> {
        if depth > DEPTH_MAX {
            return Err(DecodeError::Malformed);
        }
        self.0.object()?;
        let mut object = Map::new();
        for field in wire::fields(bytes) {
            let Field { number, payload } = field?;
            self.0.value(0)?;
            let Some(known) = message.iter().find(|f| f.number == number) else { continue };
            if let Some(element) = known.kind.strip_prefix('*') {
                let list = object.entry(known.name).or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(list) = list {
                    list.push(self.value(element, payload, depth)?);
                }
            } else if let Some(element) = known.kind.strip_prefix('%') {
                let (key, entry) = self.map_entry(element, payload, depth)?;
                let map = object.entry(known.name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(map) = map {
                    map.insert(key, entry);
                }
            } else if known.name.is_empty() {
                if let Value::Object(inlined) = self.value(known.kind, payload, depth)? {
                    object.extend(inlined);
                }
            } else {
                let value = self.value(known.kind, payload, depth)?;
                if known.keep_zero || !is_zero(&value) {
                    object.insert(known.name.to_owned(), value);
                }
            }
        }
        Ok(object)
    }

    fn value(&mut self, kind: &str, payload: Payload<'_>, depth: usize) -> Result<Value, DecodeError> {
        if let Some(name) = kind.strip_prefix('@') {
            let message = messages::message(name).ok_or(DecodeError::Malformed)?;
            return self.read(message, bytes(payload)?, depth + 1).map(Value::Object);
        }
        if let Some(element) = kind.strip_prefix('*') {
            return self.list(element, bytes(payload)?, depth);
        }
        if let Payload::Bytes(bytes) = payload {
            // As base64 they are a third longer.
            self.0.value(bytes.len() + bytes.len() / 3)?;
        }
        Ok(match kind {
            "s" => text(payload)?.into(),
            "i" => number(payload)?.into(),
            "b" => (number(payload)? != 0).into(),
            "y" => base64::engine::general_purpose::STANDARD.encode(bytes(payload)?).into(),
            "q" => wire::fields(bytes(payload)?).last().transpose()?.map_or(Ok("0"), |f| text(f.payload))?.into(),
            "o" => int_or_string(bytes(payload)?)?,
            "t" => time(bytes(payload)?, false)?,
            "u" => time(bytes(payload)?, true)?,
            "f" | "r" => self.json(bytes(payload)?)?,
            "d" => float(payload)?,
            "x" | "l" | "w" => self.union(kind, bytes(payload)?, depth)?,
            _ => return Err(DecodeError::Malformed),
        })
    }

    /// A list as the value of a map is a message whose field 1 repeats (authentication/v1 generated.proto, `ExtraValue`).
    fn list(&mut self, element: &str, message: &[u8], depth: usize) -> Result<Value, DecodeError> {
        let mut items = Vec::new();
        for field in wire::fields(message) {
            let Field { number, payload } = field?;
            self.0.value(0)?;
            if number == 1 {
                items.push(self.value(element, payload, depth)?);
            }
        }
        Ok(Value::Array(items))
    }

    /// A map is a list of messages with the key as field 1 and the value as field 2.
    fn map_entry(&mut self, kind: &str, payload: Payload<'_>, depth: usize) -> Result<(String, Value), DecodeError> {
        let (mut key, mut entry) = (String::new(), None);
        for field in wire::fields(bytes(payload)?) {
            match field? {
                Field { number: 1, payload } => key = text(payload)?.to_owned(),
                Field { number: 2, payload } => entry = Some(self.value(kind, payload, depth)?),
                _ => {}
            }
        }
        self.0.field(key.len())?;
        let absent = || match kind.as_bytes() {
            [b'@', ..] => Value::Object(Map::new()),
            [b'*', ..] => Value::Array(Vec::new()),
            _ => "".into(),
        };
        Ok((key, entry.unwrap_or_else(absent)))
    }

    fn json(&mut self, message: &[u8]) -> Result<Value, DecodeError> {
        match wire::fields(message).next().transpose()? {
            Some(field) => parse::parse_part(bytes(field.payload)?, &mut self.0).map_err(|_| DecodeError::Malformed),
            None => Ok(Value::Null),
        }
    }
}

/// `type` 0 is `intVal`, 1 is `strVal`.
fn int_or_string(message: &[u8]) -> Result<Value, DecodeError> {
    let (mut is_text, mut integer, mut string) = (false, 0, "");
    for field in wire::fields(message) {
        match field? {
            Field { number: 1, payload } => is_text = number(payload)? == 1,
            Field { number: 2, payload } => integer = number(payload)?,
            Field { number: 3, payload } => string = text(payload)?,
            _ => {}
        }
    }
    Ok(if is_text { string.into() } else { integer.into() })
}

/// Decodes seconds and nanoseconds since 1970; an empty message means no time.
fn time(message: &[u8], micros: bool) -> Result<Value, DecodeError> {
    let (mut seconds, mut nanos, mut any) = (0, 0, false);
    for field in wire::fields(message) {
        any = true;
        match field? {
            Field { number: 1, payload } => seconds = number(payload)?,
            Field { number: 2, payload } => nanos = number(payload)?,
            _ => {}
        }
    }
    if !any {
        return Ok(Value::Null);
    }
    let nanos = if micros { i32::try_from(nanos).unwrap_or_default() } else { 0 };
    let time = Timestamp::new(seconds, nanos).map_err(|_| DecodeError::Malformed)?;
    Ok(if micros { format!("{time:.6}") } else { time.to_string() }.into())
}

fn bytes(payload: Payload<'_>) -> Result<&[u8], DecodeError> {
    match payload {
        Payload::Bytes(bytes) => Ok(bytes),
        Payload::Number(_) => Err(DecodeError::Malformed),
    }
}

fn text(payload: Payload<'_>) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes(payload)?).map_err(|_| DecodeError::Malformed)
}

fn number(payload: Payload<'_>) -> Result<i64, DecodeError> {
    match payload {
        // Negative numbers are ten bytes of two's complement.
        Payload::Number(number) => Ok(number.cast_signed()),
        Payload::Bytes(_) => Err(DecodeError::Malformed),
    }
}

/// A floating point number as JSON writes it: whole numbers without a fraction.
fn float(payload: Payload<'_>) -> Result<Value, DecodeError> {
    /// Above it, adjacent integers are not distinguishable.
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    let Payload::Number(bits) = payload else { return Err(DecodeError::Malformed) };
    let number = f64::from_bits(bits);
    if number.fract() == 0.0 && number.abs() < WHOLE_MAX {
        return format!("{number:.0}").parse::<i64>().map(Value::from).map_err(|_| DecodeError::Malformed);
    }
    serde_json::Number::from_f64(number).map(Value::Number).ok_or(DecodeError::Malformed)
}

/// Values that JSON's `omitempty` would leave out.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    pub(super) fn decode(body: &[u8]) -> Result<Value, DecodeError> {
        decode_within(body, parse::MEMORY_MAX)
    }

    pub(super) fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        let low = u8::try_from(length & 0x7f).expect("seven bits");
        let mut out = match length >> 7 {
            0 => vec![number << 3 | 2, low],
            high => vec![number << 3 | 2, low | 0x80, u8::try_from(high).expect("short")],
        };
        out.extend(content);
        out
    }

    pub(super) fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &meta), field(2, raw)].concat()
    }

    #[test]
    fn a_config_map() {
        let meta = [field(1, b"c"), field(3, b""), field(8, b"")].concat();
        let entry = [field(1, b"k"), field(2, b"v")].concat();
        let raw = [field(1, &meta), field(2, &entry), vec![4 << 3, 0]].concat();
        let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"},
            "data": {"k": "v"}, "immutable": false});
        assert_eq!(decode(&body("v1", "ConfigMap", &raw)), Ok(expected));
    }

    /// Each of these fits into a request and would be hundreds of megabytes as values.
    #[test]
    fn memory_of_a_body_is_bounded() {
        let reference = field(13, &field(1, b"a"));
        for (element, count) in [(&reference[..], 600_000), (&field(13, b"")[..], 1_500_000)] {
            let meta = element.repeat(count);
            let raw = [&[0x0a][..], &varint(meta.len()), &meta].concat();
            let about = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
            let body = [MAGIC, &field(1, &about), &[0x12], &varint(raw.len()), &raw].concat();
            assert!(body.len() < 3_200_000);
            assert_eq!(decode(&body), Err(DecodeError::Exhausted(Exhausted)), "{element:?}");
        }
        let few = body("v1", "ConfigMap", &field(1, &reference.repeat(20)));
        assert!(decode_within(&few, 30_000).is_ok() && decode_within(&few, 2_000).is_err());
        let json = [b"[".to_vec(), b"{\"\":0},".repeat(100_000), b"0]".to_vec()].concat();
        assert!(Reader::default().json(&[&[0x0a][..], &varint(json.len()), &json].concat()).is_err());
    }

    fn varint(mut number: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while number > 0x7f {
            out.push(u8::try_from(number & 0x7f).expect("seven bits") | 0x80);
            number >>= 7;
        }
        out.push(u8::try_from(number).expect("seven bits"));
        out
    }

    #[test]
    fn junk_is_refused() {
        assert_eq!(decode(b"{}"), Err(DecodeError::NoMagic));
        assert_eq!(decode(&body("v1", "ConfigMap", &[0x0a, 0x7f])), Err(DecodeError::Malformed));
        assert_eq!(decode(&body("v1", "ConfigMap", &[0xff; 12])), Err(DecodeError::Malformed));
        let unknown = decode(&body("example.io/v1", "Task", &[]));
        assert!(matches!(unknown, Err(DecodeError::UnknownKind { .. })), "{unknown:?}");
    }
}
