//! Values of objects as CEL has them.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta};
use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::{Key, Map};
use serde_json::Value;

use crate::schema::shape::Shape;

/// A value of this shape.
pub(crate) fn convert(value: &Value, shape: &Shape) -> Cel {
    match (value, shape) {
        (Value::Null, _) => Cel::Null,
        (Value::Number(number), Shape::Double) => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
        (Value::Number(number), Shape::Int) => {
            // 1.0 is an integer to JSON.
            #[allow(clippy::cast_possible_truncation, reason = "saturates")]
            let whole = || number.as_f64().unwrap_or_default() as i64;
            Cel::Int(number.as_i64().unwrap_or_else(whole))
        }
        (Value::String(text), shape) => string(text, shape),
        (Value::Array(items), Shape::List(item)) => {
            Cel::List(Arc::new(items.iter().map(|value| convert(value, item)).collect()))
        }
        (Value::Object(map), Shape::Map(inner)) => {
            of_map(map.iter().map(|(key, value)| (key.clone(), convert(value, inner))))
        }
        (Value::Object(map), Shape::Object(fields)) => of_map(map.iter().filter_map(|(name, value)| {
            let field = fields.get(name)?;
            Some((field.escaped.clone(), convert(value, &field.shape)))
        })),
        (other, _) => plain(other),
    }
}

fn of_map(entries: impl Iterator<Item = (String, Cel)>) -> Cel {
    let map: HashMap<Key, Cel> = entries.map(|(key, value)| (Key::String(Arc::new(key)), value)).collect();
    Cel::Map(Map { map: Arc::new(map) })
}

fn plain(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => {
            number.as_i64().map_or_else(|| Cel::Float(number.as_f64().unwrap_or(f64::NAN)), Cel::Int)
        }
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(plain).collect())),
        Value::Object(map) => of_map(map.iter().map(|(key, value)| (key.clone(), plain(value)))),
    }
}

fn string(text: &str, shape: &Shape) -> Cel {
    let converted = match shape {
        Shape::Bytes => STANDARD.decode(text).ok().map(|bytes| Cel::Bytes(Arc::new(bytes))),
        Shape::Duration => duration(text).map(Cel::Duration),
        Shape::DateTime => DateTime::parse_from_rfc3339(text).ok().map(Cel::Timestamp),
        Shape::Date => text
            .parse::<NaiveDate>()
            .ok()
            .map(|date| Cel::Timestamp(date.and_time(NaiveTime::MIN).and_utc().fixed_offset())),
        _ => None,
    };
    // A text that does not match its format is refused by the schema, or allowed.
    converted.unwrap_or_else(|| Cel::String(Arc::new(text.to_owned())))
}

/// Go's durations: `1h30m`, `-1.5s`.
fn duration(text: &str) -> Option<TimeDelta> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(TimeDelta::zero());
    }
    let mut nanoseconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at_checked(digits)?;
        let unit = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, left) = after.split_at_checked(unit)?;
        let factor = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 6e10,
            "h" => 3.6e12,
            _ => return None,
        };
        nanoseconds += number.parse::<f64>().ok()? * factor;
        rest = left;
    }
    #[allow(clippy::cast_possible_truncation, reason = "saturates")]
    let whole = (sign * nanoseconds) as i64;
    (!text.is_empty()).then(|| TimeDelta::nanoseconds(whole))
}
