//! `configData` of a Device, as a mapper is given it: values wrapped in `google.protobuf.Any`. Knows the wrappers of
//! `google/protobuf/wrappers.proto`, and no protocol.
//!
//! Numbers arrive as float32 mostly, and people write numbers as text and text as numbers. The type of the key decides
//! how its value is read.

use std::collections::BTreeMap;

use sampan_dmi::{Any, CustomizedValue};

#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    Text(String),
    Number(f64),
    Flag(bool),
}

/// Values by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config(BTreeMap<String, Datum>);

/// Field 1 of all wrappers, for each type that a number, a text or a flag may have.
mod wrapper {
    use sampan_dmi::Message;

    macro_rules! wrapper {
        ($name:ident, $kind:ident, $of:ty) => {
            #[derive(Clone, PartialEq, prost::Message)]
            pub(super) struct $name {
                #[prost($kind, tag = "1")]
                pub(super) value: $of,
            }
        };
    }
    wrapper!(Text, string, String);
    wrapper!(Float, float, f32);
    wrapper!(Double, double, f64);
    wrapper!(Int32, int32, i32);
    wrapper!(Int64, int64, i64);
    wrapper!(UInt32, uint32, u32);
    wrapper!(UInt64, uint64, u64);
    wrapper!(Flag, bool, bool);

    pub(super) fn read<M: Message + Default>(bytes: &[u8]) -> Result<M, String> {
        M::decode(bytes).map_err(|error| error.to_string())
    }
}

/// The number that was written before it became a float32: 0.1, not 0.10000000149.
fn shortest(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| f64::from(number))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of a configuration are small; larger ones are refused by range"
)]
fn datum(any: &Any) -> Result<Datum, String> {
    let name = any.type_url.rsplit('/').next().unwrap_or_default();
    let bytes = any.value.as_slice();
    Ok(match name.strip_prefix("google.protobuf.").unwrap_or_default() {
        "StringValue" => Datum::Text(wrapper::read::<wrapper::Text>(bytes)?.value),
        "FloatValue" => Datum::Number(shortest(wrapper::read::<wrapper::Float>(bytes)?.value)),
        "DoubleValue" => Datum::Number(wrapper::read::<wrapper::Double>(bytes)?.value),
        "Int32Value" => Datum::Number(wrapper::read::<wrapper::Int32>(bytes)?.value.into()),
        "Int64Value" => Datum::Number(wrapper::read::<wrapper::Int64>(bytes)?.value as f64),
        "UInt32Value" => Datum::Number(wrapper::read::<wrapper::UInt32>(bytes)?.value.into()),
        "UInt64Value" => Datum::Number(wrapper::read::<wrapper::UInt64>(bytes)?.value as f64),
        "BoolValue" => Datum::Flag(wrapper::read::<wrapper::Flag>(bytes)?.value),
        _ => return Err(format!("type {name:?} is not known")),
    })
}

impl Config {
    /// # Errors
    /// A value is of no type that is known; names its key.
    pub fn read(data: Option<&CustomizedValue>) -> Result<Self, String> {
        let entries = data.into_iter().flat_map(|data| &data.data);
        let read = entries.map(|(key, any)| match datum(any) {
            Ok(datum) => Ok((key.clone(), datum)),
            Err(why) => Err(format!("configData {key}: {why}")),
        });
        Ok(Self(read.collect::<Result<_, _>>()?))
    }

    /// Returns these values, and values of `others` for missing keys.
    #[must_use]
    pub fn over(&self, others: &Self) -> Self {
        let mut all = others.clone();
        all.0.extend(self.0.iter().map(|(key, datum)| (key.clone(), datum.clone())));
        all
    }

    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Returns the text of a key; `None` if it is missing or empty.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<String> {
        match self.0.get(key)? {
            Datum::Text(text) if text.trim().is_empty() => None,
            Datum::Text(text) => Some(text.trim().to_owned()),
            Datum::Number(number) => Some(number.to_string()),
            Datum::Flag(flag) => Some(flag.to_string()),
        }
    }

    /// # Errors
    /// It is not a number.
    pub fn number(&self, key: &str) -> Result<Option<f64>, String> {
        let number = match self.0.get(key) {
            None => return Ok(None),
            Some(Datum::Number(number)) => Some(*number),
            Some(Datum::Text(text)) => text.trim().parse().ok(),
            Some(Datum::Flag(_)) => None,
        };
        match number.filter(|number| number.is_finite()) {
            Some(number) => Ok(Some(number)),
            None => Err(format!("configData {key} is no number")),
        }
    }

    /// # Errors
    /// It is not an integer within the range.
    #[expect(clippy::cast_possible_truncation, reason = "whole, and within the range of a u32")]
    #[expect(clippy::cast_sign_loss, reason = "within the range of a u32")]
    pub fn whole(&self, key: &str, range: std::ops::RangeInclusive<u32>) -> Result<Option<u32>, String> {
        let Some(number) = self.number(key)? else { return Ok(None) };
        let (first, last) = (f64::from(*range.start()), f64::from(*range.end()));
        if number.fract() != 0.0 || number < first || number > last {
            return Err(format!("configData {key} is {number}, and should be {first} to {last}"));
        }
        Ok(Some(number as u32))
    }

    /// # Errors
    /// The value is not `true` or `false`.
    pub fn flag(&self, key: &str) -> Result<bool, String> {
        match self.0.get(key) {
            None => Ok(false),
            Some(Datum::Flag(flag)) => Ok(*flag),
            Some(Datum::Text(text)) if text.trim().eq_ignore_ascii_case("true") => Ok(true),
            Some(Datum::Text(text)) if text.trim().eq_ignore_ascii_case("false") || text.trim().is_empty() => Ok(false),
            Some(_) => Err(format!("configData {key} is neither true nor false")),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn config(entries: &[(&str, Datum)]) -> Config {
        Config(entries.iter().map(|(key, datum)| ((*key).to_owned(), datum.clone())).collect())
    }

    pub(crate) fn text(text: &str) -> Datum {
        Datum::Text(text.to_owned())
    }

    fn read(entries: Vec<(&str, Any)>) -> Result<Config, String> {
        let data = entries.into_iter().map(|(key, any)| (key.to_owned(), any)).collect();
        Config::read(Some(&CustomizedValue { data }))
    }

    #[test]
    fn wrapped_values_are_read() {
        let config = read(vec![
            ("offset", Any::float(2.0)),
            ("scale", Any::float(0.1)),
            ("big", Any::int64(300_000_000)),
            ("on", Any::boolean(true)),
            ("off", Any::boolean(false)),
            ("name", Any::string(" GPIO17 ".into())),
            ("quoted", Any::string("7".into())),
        ]);
        let config = config.expect("all of it is known");
        assert_eq!(config.whole("offset", 0..=65_535), Ok(Some(2)));
        assert_eq!(config.number("scale"), Ok(Some(0.1)));
        assert_eq!(config.whole("big", 0..=u32::MAX), Ok(Some(300_000_000)));
        assert_eq!((config.flag("on"), config.flag("off"), config.flag("absent")), (Ok(true), Ok(false), Ok(false)));
        assert_eq!(config.text("name").as_deref(), Some("GPIO17"));
        assert_eq!((config.text("offset").as_deref(), config.whole("quoted", 0..=9)), (Some("2"), Ok(Some(7))));
    }

    #[test]
    fn error_names_the_key_of_a_wrong_value() {
        let config = read(vec![("a", Any::float(1.5)), ("b", Any::string("x".into())), ("c", Any::float(-1.0))]);
        let config = config.expect("all of it is known");
        for key in ["a", "b", "c"] {
            let error = config.whole(key, 0..=9).expect_err("it does not fit");
            assert!(error.starts_with(&format!("configData {key} is ")), "{error}");
        }
        assert!(config.flag("a").is_err() && config.flag("b").is_err());
        let strange = Any { type_url: "type.googleapis.com/google.protobuf.Duration".into(), value: Vec::new() };
        assert_eq!(
            read(vec![("k", strange)]),
            Err("configData k: type \"google.protobuf.Duration\" is not known".into())
        );
        let broken = Any { value: vec![0x0a, 9], ..Any::string(String::new()) };
        assert!(read(vec![("k", broken)]).is_err());
    }

    #[test]
    fn a_property_s_own_value_counts() {
        let protocol = config(&[("a", Datum::Number(1.0)), ("b", Datum::Number(1.0))]);
        let visitors = config(&[("b", Datum::Number(2.0))]);
        let all = visitors.over(&protocol);
        assert_eq!((all.number("a"), all.number("b")), (Ok(Some(1.0)), Ok(Some(2.0))));
    }
}
