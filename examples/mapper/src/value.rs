//! Converts values between hardware and twins: a driver's value to the text of a typed property, and back.

use std::fmt;

/// A value in the form of the hardware.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Whole(i64),
    Number(f64),
    Flag(bool),
}

/// A property's type, of its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Int,
    Float,
    Double,
    Boolean,
    String,
}

impl Kind {
    /// # Errors
    /// Values of this type are nothing that one reads from a line or a register.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.to_ascii_uppercase().as_str() {
            "INT" => Ok(Self::Int),
            "FLOAT" => Ok(Self::Float),
            "DOUBLE" => Ok(Self::Double),
            "BOOLEAN" => Ok(Self::Boolean),
            "STRING" => Ok(Self::String),
            _ => Err(format!("type {text:?} cannot be read or written: INT, FLOAT, DOUBLE, BOOLEAN and STRING can")),
        }
    }

    /// Name in the metadata of a twin.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Float => "float",
            Self::Double => "double",
            Self::Boolean => "boolean",
            Self::String => "string",
        }
    }
}

/// Twelve digits: errors of scaling in the sixteenth digit are not part of the measurement.
struct Digits(f64);

impl fmt::Display for Digits {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounded = format!("{:.11e}", self.0).parse().unwrap_or(self.0);
        // No minus before zero.
        write!(out, "{}", if rounded == 0.0 { 0.0 } else { rounded })
    }
}

/// The text of a value in a property of this type.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding to a float32, and saturating to an integer, are what is wanted"
)]
pub fn format(value: Value, kind: Kind) -> String {
    match (kind, value) {
        (Kind::Boolean, Value::Flag(flag)) => flag.to_string(),
        (Kind::Boolean, Value::Whole(number)) => (number != 0).to_string(),
        (Kind::Boolean, Value::Number(number)) => (number != 0.0).to_string(),
        (Kind::String, Value::Flag(flag)) => if flag { "ON" } else { "OFF" }.to_owned(),
        (_, Value::Flag(flag)) => u8::from(flag).to_string(),
        (_, Value::Whole(number)) => number.to_string(),
        (Kind::Int, Value::Number(number)) => (number.round() as i64).to_string(),
        (Kind::Float, Value::Number(number)) => {
            let short = number as f32;
            if short == 0.0 { "0".to_owned() } else { short.to_string() }
        }
        (Kind::Double | Kind::String, Value::Number(number)) => Digits(number).to_string(),
    }
}

fn flag(text: &str) -> Option<Value> {
    let is = |words: [&str; 3]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    match text {
        _ if is(["true", "on", "1"]) => Some(Value::Flag(true)),
        _ if is(["false", "off", "0"]) => Some(Value::Flag(false)),
        _ => None,
    }
}

fn number(text: &str) -> Option<Value> {
    let whole = text.parse().ok().map(Value::Whole);
    whole.or_else(|| text.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::Number))
}

/// Parses a desired value of this type.
///
/// # Errors
/// It is not a value of this type.
pub fn parse(text: &str, kind: Kind) -> Result<Value, String> {
    let shown: String = text.chars().take(64).collect();
    let text = text.trim();
    let (value, what) = match kind {
        Kind::Int => (text.parse().ok().map(Value::Whole), "a whole number"),
        Kind::Float | Kind::Double => (number(text), "a number"),
        Kind::Boolean => (flag(text), "true or false"),
        Kind::String => (if text.parse::<f64>().is_ok() { number(text) } else { flag(text) }, "ON, OFF or a number"),
    };
    value.ok_or_else(|| format!("{shown:?} is not {what}"))
}

/// Minimum and maximum of the model, both optional.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Range {
    least: Option<f64>,
    greatest: Option<f64>,
}

impl Range {
    /// Ignores texts that are not numbers: they are not validated before.
    #[must_use]
    pub fn new(least: &str, greatest: &str) -> Self {
        let bound = |text: &str| text.trim().parse().ok().filter(|number: &f64| number.is_finite());
        Self { least: bound(least), greatest: bound(greatest) }
    }

    /// # Errors
    /// The value is outside the range.
    #[expect(clippy::cast_precision_loss, reason = "compared with a bound that has no more digits")]
    pub fn check(self, value: Value) -> Result<(), String> {
        let number = match value {
            Value::Flag(_) => return Ok(()),
            Value::Whole(number) => number as f64,
            Value::Number(number) => number,
        };
        match (self.least, self.greatest) {
            (Some(least), _) if number < least => Err(format!("{number} is less than the minimum, {least}")),
            (_, Some(greatest)) if number > greatest => Err(format!("{number} is more than the maximum, {greatest}")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_become_the_text_of_their_type() {
        for (value, kind, text) in [
            (Value::Number(0.1 * 3.0), Kind::Float, "0.3"),
            (Value::Number(0.1 * 3.0), Kind::Double, "0.3"),
            (Value::Number(21.562), Kind::Float, "21.562"),
            (Value::Number(-0.0), Kind::Float, "0"),
            (Value::Number(-0.0), Kind::Double, "0"),
            (Value::Number(21.5), Kind::Int, "22"),
            (Value::Whole(-7), Kind::Int, "-7"),
            (Value::Whole(4_294_967_295), Kind::Float, "4294967295"),
            (Value::Whole(2), Kind::Boolean, "true"),
            (Value::Flag(true), Kind::Boolean, "true"),
            (Value::Flag(false), Kind::String, "OFF"),
            (Value::Flag(true), Kind::Int, "1"),
        ] {
            assert_eq!(format(value, kind), text, "{value:?} {kind:?}");
        }
    }

    #[test]
    fn texts_become_values_or_are_refused() {
        for (text, kind, value) in [
            ("ON", Kind::String, Value::Flag(true)),
            ("off", Kind::Boolean, Value::Flag(false)),
            ("1", Kind::String, Value::Whole(1)),
            ("1", Kind::Boolean, Value::Flag(true)),
            ("21.5", Kind::Float, Value::Number(21.5)),
            (" 7 ", Kind::Double, Value::Whole(7)),
            ("-3", Kind::Int, Value::Whole(-3)),
        ] {
            assert_eq!(parse(text, kind), Ok(value), "{text}");
        }
        for (text, kind) in
            [("", Kind::Int), ("1.5", Kind::Int), ("NaN", Kind::Float), ("inf", Kind::Double), ("BLINK", Kind::String)]
        {
            assert!(parse(text, kind).is_err(), "{text}");
        }
        assert_eq!(parse("2", Kind::Boolean), Err("\"2\" is not true or false".into()));
    }

    #[test]
    fn value_out_of_range_is_refused() {
        let range = Range::new("-40", "125");
        assert_eq!(range.check(Value::Number(125.0)), Ok(()));
        assert_eq!(range.check(Value::Whole(126)), Err("126 is more than the maximum, 125".into()));
        assert_eq!(range.check(Value::Number(-40.5)), Err("-40.5 is less than the minimum, -40".into()));
        assert_eq!(Range::new("", "many").check(Value::Whole(i64::MAX)), Ok(()));
    }

    proptest! {
        #[test]
        fn written_value_equals_the_read_one(number in any::<i64>(), part in -1.0e6..1.0e6_f64) {
            prop_assert_eq!(parse(&format(Value::Whole(number), Kind::Int), Kind::Int), Ok(Value::Whole(number)));
            let text = format(Value::Number(part), Kind::Double);
            prop_assert_eq!(format(parse(&text, Kind::Double).expect("a number"), Kind::Double), text);
        }
    }
}
