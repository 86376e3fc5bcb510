//! Parses requests over MQTT from untrusted JSON texts. Knows no device.

use std::collections::BTreeMap;

use sampan_devices_control::Text;
use sampan_sys::gather::Gather;
use serde_json::{Map, Value};

use super::plain;

/// Longest id of a message that is given back, in bytes.
pub(super) const LONGEST_ID: usize = 256;
/// Longest name of a type.
const LONGEST_KIND: usize = 32;

/// An invalid request: the id for the answer, and the reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) event_id: String,
    pub(super) why: String,
}

/// A `twin/update`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) event_id: String,
    /// `None` is JSON's null: the property must be removed.
    pub(super) twin: BTreeMap<Text, Option<Change>>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) expected: Option<Text>,
    pub(super) actual: Option<Text>,
    /// Desired value that a driver has passed to the device; empty if there was no value, and `None` without a driver.
    pub(super) observed: Option<Text>,
    /// The type that the sender names, in lower case.
    pub(super) kind: Option<Text>,
}

/// The id and everything else of a message.
pub(super) fn object(payload: &[u8]) -> Result<(String, Map<String, Value>), Bad> {
    let bad = |why: String| Bad { event_id: String::new(), why };
    let map = match serde_json::from_slice(payload) {
        Ok(Value::Object(map)) => map,
        Ok(_) => return Err(bad("the message is no JSON object".to_owned())),
        Err(error) => return Err(bad(format!("the message is no JSON: {error}"))),
    };
    match map.get("event_id") {
        None | Some(Value::Null) => Ok((String::new(), map)),
        Some(Value::String(id)) if id.len() <= LONGEST_ID => Ok((id.clone(), map)),
        Some(_) => Err(bad(format!("event_id is no text of at most {LONGEST_ID} bytes"))),
    }
}

/// A `twin/update`.
pub(super) fn update(payload: &[u8]) -> Result<Update, Bad> {
    plain::update(payload).map_or_else(|| any_update(payload), Ok)
}

fn any_update(payload: &[u8]) -> Result<Update, Bad> {
    let (event_id, mut map) = object(payload)?;
    let read = match map.remove("twin") {
        Some(Value::Object(twin)) if !twin.is_empty() => {
            twin.into_iter().map(|(key, value)| Ok((change(&key, value)?, key))).collect::<Result<Vec<_>, String>>()
        }
        _ => Err("the message has no twin".to_owned()),
    };
    match read {
        Ok(changes) => {
            Ok(Update { event_id, twin: changes.into_iter().map(|(change, key)| (key.into(), change)).into_map() })
        }
        Err(why) => Err(Bad { event_id, why }),
    }
}

fn change(key: &str, value: Value) -> Result<Option<Change>, String> {
    let mut map = match value {
        Value::Null => return Ok(None),
        Value::Object(map) => map,
        _ => return Err(format!("{key:?} is neither an object nor null")),
    };
    let kind = match map.get("metadata").map(|metadata| &metadata["type"]) {
        Some(Value::String(kind)) if kind.len() <= LONGEST_KIND => Some(kind.to_lowercase().into()),
        None | Some(Value::Null) => None,
        Some(_) => return Err(format!("the type of {key:?} is no text of at most {LONGEST_KIND} bytes")),
    };
    let mut value = |which: &str| match map.remove(which) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(mut held)) => match held.remove("value") {
            Some(Value::String(value)) => Ok(Some(value.into())),
            Some(Value::Null) | None => Err(format!("{which} of {key:?} has no value")),
            Some(_) => Err(format!("the value of {which} of {key:?} is no text")),
        },
        Some(_) => Err(format!("{which} of {key:?} is no object")),
    };
    Ok(Some(Change { expected: value("expected")?, actual: value("actual")?, observed: None, kind }))
}

/// A `state/update`: its id and the state, in lower case.
pub(super) fn state(payload: &[u8]) -> Result<(String, Text), Bad> {
    let (event_id, map) = object(payload)?;
    match map.get("state").and_then(Value::as_str).map(str::to_lowercase) {
        Some(state) if STATES.contains(&state.as_str()) => Ok((event_id, state.into())),
        _ => Err(Bad { event_id, why: format!("state is none of {}", STATES.join(", ")) }),
    }
}

/// The states of a device.
pub(super) const STATES: [&str; 5] = ["ok", "online", "offline", "unhealthy", "unknown"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn update_is_parsed() {
        let text = r#"{"event_id":"7","timestamp":1,"twin":{"temp":{"actual":{"value":"21.5"},"metadata":{"type":"FLOAT"}},
            "led":{"expected":{"value":"ON"},"actual":null,"optional":true},"old":null}}"#;
        let read = update(text.as_bytes()).expect("well formed");
        let temp = Change { actual: Some("21.5".into()), kind: Some("float".into()), ..Change::default() };
        let led = Change { expected: Some("ON".into()), ..Change::default() };
        assert_eq!(read.event_id, "7");
        let wanted = [("led", Some(led)), ("old", None), ("temp", Some(temp))];
        assert!(read.twin.iter().map(|(key, change)| (key.as_str(), change)).eq(wanted.iter().map(|(k, c)| (*k, c))));
    }

    /// A text with a repeated key is left to the slow parser.
    #[test]
    fn the_short_way_reads_as_the_long_one() {
        for text in [
            r#"{"event_id":"7","timestamp":1,"twin":{"temp":{"actual":{"value":"21.5"}},"led":{"expected":{"value":""}}}}"#,
            r#"{"twin":{"a":{},"b":{"actual":null,"optional":true}},"other":{"x":1}}"#,
            r#"{"event_id":"\u00e9","twin":{"a":{"actual":{"value":"\n","metadata":{"timestamp":3}}}}}"#,
        ] {
            let short = plain::update(text.as_bytes()).expect("plain");
            assert_eq!(Ok(short), any_update(text.as_bytes()), "{text}");
        }
        for text in [
            r#"{"event_id":"7","twin":{"a":null}}"#,
            r#"{"event_id":null,"twin":{"a":{}}}"#,
            r#"{"event_id":"7","event_id":"8","twin":{"a":{}}}"#,
            r#"{"twin":{"a":{"metadata":{"type":"INT"}}}}"#,
            r#"{"twin":{"a":{"actual":{"value":1}}}}"#,
            r#"{"twin":{}}"#,
            r#"["7",{"a":{}}]"#,
            r#"{"twin":{"a":{"actual":["1"]}}}"#,
        ] {
            assert_eq!(plain::update(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn malformed_request_gets_an_error_with_its_id() {
        for (text, id) in [
            ("", ""),
            ("[]", ""),
            ("{\"twin\":", ""),
            (r#"{"event_id":7,"twin":{"a":null}}"#, ""),
            (r#"{"event_id":"1"}"#, "1"),
            (r#"{"event_id":"1","twin":{}}"#, "1"),
            (r#"{"event_id":"1","twin":[]}"#, "1"),
            (r#"{"event_id":"1","twin":{"a":1}}"#, "1"),
            (r#"{"event_id":"1","twin":{"a":{"actual":{}}}}"#, "1"),
            (r#"{"event_id":"1","twin":{"a":{"actual":{"value":null}}}}"#, "1"),
            (r#"{"event_id":"1","twin":{"a":{"actual":{"value":21.5}}}}"#, "1"),
            (r#"{"event_id":"1","twin":{"a":{"expected":"ON"}}}"#, "1"),
            (r#"{"event_id":"1","twin":{"a":{"actual":{"value":"1"},"metadata":{"type":1}}}}"#, "1"),
        ] {
            assert_eq!(update(text.as_bytes()).map_err(|bad| bad.event_id), Err(id.to_owned()), "{text}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(update(deep.as_bytes()).is_err());
        assert!(update(b"{\"event_id\":\"\xff\"}").is_err());
    }

    #[test]
    fn states_are_five_words() {
        assert_eq!(state(br#"{"event_id":"9","state":"OnLine"}"#), Ok(("9".into(), "online".into())));
        for text in [&b"{}"[..], br#"{"state":"up"}"#, br#"{"state":1}"#, b"null"] {
            assert!(state(text).is_err());
        }
    }
}
