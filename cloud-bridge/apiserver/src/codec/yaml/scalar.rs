//! What plain words of YAML mean, in the version that Kubernetes reads: 1.1, as go.yaml.in/yaml/v2 has it (resolve.go).

use serde_json::{Number, Value};

const CORE: &str = "tag:yaml.org,2002:";
const TRUE: [&str; 11] = ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"];
const FALSE: [&str; 11] = ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"];
const NULL: [&str; 5] = ["", "~", "null", "Null", "NULL"];
const BEYOND_JSON: [&str; 12] =
    [".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF"];

/// The value of a scalar: text if it is quoted or tagged so, otherwise by its form.
pub(super) fn resolve(text: &str, plain: bool, tag: Option<&str>) -> Result<Value, String> {
    let tag = tag.map(|tag| tag.strip_prefix(CORE).unwrap_or(tag));
    let looked_at = match tag {
        None => plain,
        Some("bool" | "int" | "float" | "null") => true,
        Some(_) => false,
    };
    if !looked_at {
        return Ok(text.into());
    }
    let value = look(text)?;
    let fits = match tag {
        Some("bool") => value.is_boolean(),
        Some("int") => value.is_i64() || value.is_u64(),
        Some("float") => value.is_number(),
        Some("null") => value.is_null(),
        _ => true,
    };
    if fits { Ok(value) } else { Err(format!("cannot decode `{text}` as a !!{}", tag.unwrap_or_default())) }
}

fn look(text: &str) -> Result<Value, String> {
    if NULL.contains(&text) {
        return Ok(Value::Null);
    }
    if TRUE.contains(&text) {
        return Ok(true.into());
    }
    if FALSE.contains(&text) {
        return Ok(false.into());
    }
    if BEYOND_JSON.contains(&text) {
        return Err(format!("json: unsupported value: {text}"));
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return Ok(text.into());
    }
    let digits = text.replace('_', "");
    if let Some(integer) = integer(&digits) {
        return Ok(integer);
    }
    Ok(float(&digits).map_or_else(|| text.into(), Value::Number))
}

/// Integers with the prefixes of Go: `0x`, `0b`, `0o` and `0`.
fn integer(text: &str) -> Option<Value> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = rest.to_ascii_lowercase();
    let (radix, digits) = [("0x", 16), ("0b", 2), ("0o", 8)]
        .iter()
        .find_map(|(prefix, radix)| lower.strip_prefix(prefix).map(|digits| (*radix, digits)))
        .or_else(|| lower.strip_prefix('0').filter(|more| !more.is_empty()).map(|digits| (8, digits)))
        .unwrap_or((10, lower.as_str()));
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let number = i128::from_str_radix(digits, radix).ok()?;
    let number = if negative { -number } else { number };
    i64::try_from(number).map(Value::from).or_else(|_| u64::try_from(number).map(Value::from)).ok()
}

fn float(text: &str) -> Option<Number> {
    // Rust reads `inf` and `nan`, which are words here.
    if !text.chars().all(|c| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E')) {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    if number.fract() == 0.0 && number.abs() < 1e15 {
        return format!("{number:.0}").parse::<i64>().ok().map(Number::from);
    }
    Number::from_f64(number)
}

/// A key as JSON has it.
pub(super) fn key(key: &Value) -> Result<String, String> {
    match key {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Null => Err("unsupported map key of type: <nil>".to_owned()),
        Value::Array(_) | Value::Object(_) => Err("invalid map key".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_words() {
        for (text, value) in [
            ("", json!(null)),
            ("~", json!(null)),
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("yEs", json!("yEs")),
            ("12", json!(12)),
            ("-0x1F", json!(-31)),
            ("0b101", json!(5)),
            ("0755", json!(493)),
            ("08", json!(8)),
            ("1_000", json!(1000)),
            ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
            ("1.5", json!(1.5)),
            ("1e3", json!(1000)),
            (".5", json!(0.5)),
            ("1.2.3", json!("1.2.3")),
            ("100m", json!("100m")),
            ("2001-01-01", json!("2001-01-01")),
            ("1:30", json!("1:30")),
            ("-", json!("-")),
            ("0x", json!("0x")),
            ("infinity", json!("infinity")),
        ] {
            assert_eq!(resolve(text, true, None), Ok(value), "{text:?}");
        }
        assert!(resolve(".inf", true, None).is_err());
    }

    #[test]
    fn quotes_and_tags_decide() {
        let core = |tag: &str| format!("{CORE}{tag}");
        assert_eq!(resolve("12", false, None), Ok(json!("12")));
        assert_eq!(resolve("12", true, Some(&core("str"))), Ok(json!("12")));
        assert_eq!(resolve("12", false, Some(&core("int"))), Ok(json!(12)));
        assert_eq!(resolve("x", true, Some("!own")), Ok(json!("x")));
        assert!(resolve("x", true, Some(&core("int"))).is_err());
    }

    #[test]
    fn keys_are_texts() {
        assert_eq!(key(&json!(80)), Ok("80".to_owned()));
        assert_eq!(key(&json!(true)), Ok("true".to_owned()));
        assert!(key(&json!(null)).is_err() && key(&json!([])).is_err());
    }
}
