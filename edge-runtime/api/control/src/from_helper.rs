//! Parses [`FromHelper`] from JSON by hand, because derived code is several times as large for the daemon. As with a
//! derive, a missing field or one of another type is an error.

use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Value;

use crate::FromHelper;

impl<'de> Deserialize<'de> for FromHelper {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let line = Value::deserialize(deserializer)?;
        read(line).ok_or_else(|| D::Error::custom("no line of a helper"))
    }
}

fn read(mut line: Value) -> Option<FromHelper> {
    let all = line.as_object_mut().filter(|all| all.len() == 1)?;
    let (kind, body) = all.iter_mut().next()?;
    Some(match kind.as_str() {
        "hello" => FromHelper::Hello { version: body["version"].as_u64()?.try_into().ok()? },
        "ready" => {
            let certificate = text(body.get_mut("certificate")?)?;
            let refused = body.get_mut("refused")?.as_array_mut()?.iter_mut().map(text).collect::<Option<_>>()?;
            FromHelper::Ready { certificate, refused }
        }
        "pong" => FromHelper::Pong {},
        "counters" => FromHelper::Counters { counters: body.get_mut("counters")?.take() },
        _ => return None,
    })
}

fn text(value: &mut Value) -> Option<String> {
    if let Value::String(text) = value.take() { Some(text) } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn written_message_is_parsed() {
        for line in [
            FromHelper::Hello { version: 2 },
            FromHelper::Ready { certificate: "PEM\n".into(), refused: Vec::new() },
            FromHelper::Ready { certificate: String::new(), refused: vec!["a".into(), "b".into()] },
            FromHelper::Pong {},
            FromHelper::Counters { counters: json!({"text": "x"}) },
        ] {
            let written = serde_json::to_string(&line).expect("JSON");
            assert_eq!(serde_json::from_str::<FromHelper>(&written).ok(), Some(line), "{written}");
        }
    }

    #[test]
    fn malformed_line_is_refused() {
        for wrong in [
            json!(null),
            json!("hello"),
            json!({}),
            json!({"hello": {}}),
            json!({"hello": {"version": 1_u64 << 40}}),
            json!({"hello": {"version": 2}, "pong": {}}),
            json!({"ready": {"certificate": "x"}}),
            json!({"ready": {"certificate": 1, "refused": []}}),
            json!({"ready": {"certificate": "x", "refused": [1]}}),
            json!({"ready": []}),
            json!({"counters": {}}),
            json!({"other": {}}),
        ] {
            assert!(serde_json::from_value::<FromHelper>(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
