//! Parses [`FromHelper`] from JSON by hand, because derived code is several times as large for the daemon. As with a
//! derive, a missing field or one of another type is an error.

use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Value;

use crate::{FromHelper, MessageRow, Row};

impl<'de> Deserialize<'de> for FromHelper {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let line = Value::deserialize(deserializer)?;
        read(line).ok_or_else(|| D::Error::custom("no line of a helper"))
    }
}

fn read(mut line: Value) -> Option<FromHelper> {
    let all = line.as_object_mut().filter(|all| all.len() == 1)?;
    let (kind, body) = all.iter_mut().next()?;
    let number = |field: &str| body[field].as_u64();
    Some(match kind.as_str() {
        "hello" => FromHelper::Hello { version: number("version")?.try_into().ok()? },
        "report" => FromHelper::Report { batch: number("batch")?, devices: list(body, "devices")? },
        "keep" => {
            let durable = body["durable"].as_bool()?;
            let row = |mut row: Value| Some(Row { uid: text(&mut row, "uid")?, record: text(&mut row, "record")? });
            FromHelper::Keep { rows: list(body, "rows")?.into_iter().map(row).collect::<Option<_>>()?, durable }
        }
        "event" => FromHelper::Event {
            warning: body["warning"].as_bool()?,
            namespace: text(body, "namespace")?,
            name: text(body, "name")?,
            uid: text(body, "uid")?,
            reason: text(body, "reason")?,
            message: text(body, "message")?,
        },
        "messages" => {
            let (batch, most_bytes, ttl_s) = (number("batch")?, number("mostBytes")?, number("ttlS")?);
            let row = |mut row: Value| {
                let class = row["class"].as_u64()?.try_into().ok()?;
                Some(MessageRow { rule: text(&mut row, "rule")?, class, record: text(&mut row, "record")? })
            };
            let rows = list(body, "rows")?.into_iter().map(row).collect::<Option<_>>()?;
            FromHelper::Messages { batch, rows, most_bytes, ttl_s }
        }
        "pod" => FromHelper::Pod { uid: text(body, "uid")? },
        "called" => FromHelper::Called { id: number("id")?, answer: field(body, "answer")? },
        "request" => FromHelper::Request { id: number("id")?, request: field(body, "request")? },
        "pong" => FromHelper::Pong {},
        "counters" => FromHelper::Counters { counters: field(body, "counters")? },
        "answer" => {
            let id = number("id")?;
            let answer = body.get_mut("answer")?;
            let answer = match field(answer, "Ok") {
                Some(good) => Ok(good),
                None => Err(text(answer, "Err")?),
            };
            FromHelper::Answer { id, answer }
        }
        _ => return None,
    })
}

fn field(body: &mut Value, name: &str) -> Option<Value> {
    body.get_mut(name).map(Value::take)
}

fn text(body: &mut Value, name: &str) -> Option<String> {
    if let Value::String(text) = field(body, name)? { Some(text) } else { None }
}

fn list(body: &mut Value, name: &str) -> Option<Vec<Value>> {
    if let Value::Array(list) = field(body, name)? { Some(list) } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn written_message_is_parsed() {
        let row = Row { uid: "u".into(), record: "{\"a\":\"ü\"}".into() };
        let message = MessageRow { rule: "r".into(), class: 9, record: String::new() };
        let text = |text: &str| text.to_owned();
        for line in [
            FromHelper::Hello { version: 2 },
            FromHelper::Report { batch: u64::MAX, devices: vec![json!({"uid": "u"}), Value::Null] },
            FromHelper::Keep { rows: vec![row.clone(), row], durable: true },
            FromHelper::Event {
                namespace: text("ns"),
                name: text("d"),
                uid: text("u"),
                warning: false,
                reason: text("R"),
                message: text("m"),
            },
            FromHelper::Messages { batch: 1, rows: vec![message], most_bytes: 2, ttl_s: 3 },
            FromHelper::Pod { uid: text("u") },
            FromHelper::Called { id: 4, answer: json!([1]) },
            FromHelper::Called { id: 4, answer: Value::Null },
            FromHelper::Request { id: 4, request: json!({"path": "/"}) },
            FromHelper::Pong {},
            FromHelper::Counters { counters: json!({"devices": 1}) },
            FromHelper::Answer { id: 5, answer: Ok(Value::Null) },
            FromHelper::Answer { id: 5, answer: Err(text("why")) },
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
            json!({"hello": {"version": -1}}),
            json!({"hello": {"version": 1_u64 << 40}}),
            json!({"hello": {"version": 2}, "called": {"id": 1, "answer": 1}}),
            json!({"report": {"batch": 1, "devices": {}}}),
            json!({"keep": {"durable": true, "rows": [{"uid": "u"}]}}),
            json!({"keep": {"durable": true, "rows": [7]}}),
            json!({"messages": {"batch": 1, "mostBytes": 1, "ttlS": 1, "rows": [{"rule": "r", "class": 300, "record": ""}]}}),
            json!({"answer": {"id": 1, "answer": {"Err": 7}}}),
            json!({"answer": {"id": 1, "answer": 7}}),
            json!({"answer": []}),
            json!({"other": {}}),
        ] {
            assert!(serde_json::from_value::<FromHelper>(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
