//! Names and values out of JSON, with limits. Pure: no I/O.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::messages::csi::Map;

/// Most entries, and the most bytes of all names and values. A Secret has up to 1 MiB.
const MAX_ENTRIES: usize = 256;
const MAX_BYTES: usize = 1 << 20;

/// An object whose values are texts; null is an empty one. `what`: its name, for messages.
///
/// # Errors
/// It is something else, or over a limit.
pub(super) fn texts(object: &Value, what: &str) -> Result<Map, String> {
    read(object, what, |value| Some(value.to_owned()))
}

/// `data` of a Secret: texts in Base64. Values never come into a message.
///
/// # Errors
/// The errors of [`texts`]; or a value is not UTF-8, and cannot be passed to a driver.
pub(super) fn secret(data: &Value, what: &str) -> Result<Map, String> {
    read(data, what, |value| String::from_utf8(STANDARD.decode(value).ok()?).ok())
}

fn read(object: &Value, what: &str, value_of: impl Fn(&str) -> Option<String>) -> Result<Map, String> {
    if object.is_null() {
        return Ok(Map::new());
    }
    let object = object.as_object().ok_or_else(|| format!("{what} is not an object"))?;
    if object.len() > MAX_ENTRIES {
        return Err(format!("{what} has more than {MAX_ENTRIES} entries"));
    }
    let (mut map, mut bytes) = (Map::new(), 0_usize);
    for (key, value) in object {
        let value = value.as_str().and_then(&value_of).ok_or_else(|| format!("a value of {what} is not text"))?;
        bytes = bytes.saturating_add(key.len()).saturating_add(value.len());
        if bytes > MAX_BYTES {
            return Err(format!("{what} has more than {MAX_BYTES} bytes"));
        }
        map.insert(key.clone(), value);
    }
    Ok(map)
}

/// Both; what is in both is the second one's.
pub(super) fn merged(mut first: Map, second: Map) -> Map {
    for (key, value) in second.iter() {
        first.insert(key.clone(), value.clone());
    }
    first
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pairs(map: &Map) -> Vec<(&str, &str)> {
        map.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    #[test]
    fn texts_and_secrets_are_read() {
        let read = texts(&json!({"server": "nas", "share": "/a"}), "x").expect("texts");
        assert_eq!(pairs(&read), [("server", "nas"), ("share", "/a")]);
        assert_eq!(texts(&Value::Null, "x"), Ok(Map::new()));
        let read = secret(&json!({"user": "YQ==", "empty": ""}), "x").expect("a Secret");
        assert_eq!(pairs(&read), [("empty", ""), ("user", "a")]);
        let second = texts(&json!({"user": "b", "z": "1"}), "x").expect("texts");
        assert_eq!(pairs(&merged(read, second)), [("empty", ""), ("user", "b"), ("z", "1")]);
    }

    #[test]
    fn wrong_maps_are_refused() {
        for wrong in [json!([]), json!("a"), json!({"a": 1}), json!({"a": null}), json!({"a": {}})] {
            assert!(texts(&wrong, "volumeAttributes").is_err_and(|why| why.contains("volumeAttributes")), "{wrong}");
        }
        assert!(secret(&json!({"a": "?"}), "x").is_err(), "no Base64");
        assert_eq!(secret(&json!({"a": "/w=="}), "x"), Err("a value of x is not text".to_owned()), "not UTF-8");
        let many: serde_json::Map<String, Value> = (0..=MAX_ENTRIES).map(|key| (key.to_string(), "".into())).collect();
        assert!(texts(&Value::Object(many), "x").is_err_and(|why| why.contains("256 entries")));
        let long = json!({"a": "v".repeat(MAX_BYTES)});
        assert!(texts(&long, "x").is_err_and(|why| why.contains("1048576 bytes")));
    }
}
