//! JSON at hand, read as a type: the value, or where it does not fit and why. All types of Kubernetes are read by this
//! one reader, in the bridge's crates: code is made for each pair of type and reader, and their types are many.

use std::fmt::{self, Display, Write as _};

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Error, Expected, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde::{Deserialize, Deserializer};
use serde_json::map::Iter;
use serde_json::{Map, Number, Value};

/// Reads a value as the type `T`.
///
/// # Errors
/// The first field, in the order of the object, that does not fit.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, Misfit> {
    T::deserialize(Reader(value))
}

/// Reads a list that a client may have written as null, as `deserialize_with` of a field.
///
/// # Errors
/// The value is not a list, or an element does not fit.
pub fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// What does not fit its type.
#[derive(Debug)]
pub struct Misfit(Box<Inner>);

#[derive(Debug)]
struct Inner {
    /// Path from the innermost field outwards.
    path: Vec<Step>,
    why: String,
}

#[derive(Debug)]
enum Step {
    Field(String),
    Element(usize),
}

impl Misfit {
    /// Where it is: `spec.containers[0].name`; `.` is the object itself.
    pub fn path(&self) -> String {
        let mut path = String::new();
        for step in self.0.path.iter().rev() {
            match step {
                Step::Field(name) if path.is_empty() => path.push_str(name),
                Step::Field(name) => {
                    path.push('.');
                    path.push_str(name);
                }
                Step::Element(index) => drop(write!(path, "[{index}]")),
            }
        }
        if path.is_empty() { ".".to_owned() } else { path }
    }

    /// What is wrong there.
    pub fn why(&self) -> &str {
        &self.0.why
    }

    #[inline(never)]
    fn in_field(mut self, name: &str) -> Self {
        self.0.path.push(Step::Field(name.to_owned()));
        self
    }

    #[inline(never)]
    fn in_element(mut self, index: usize) -> Self {
        self.0.path.push(Step::Element(index));
        self
    }
}

impl Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path(), self.0.why)
    }
}

impl std::error::Error for Misfit {}

impl Error for Misfit {
    fn custom<T: Display>(why: T) -> Self {
        Self(Box::new(Inner { path: Vec::new(), why: why.to_string() }))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        match found {
            Unexpected::Unit => Self::custom(format_args!("invalid type: null, expected {expected}")),
            found => Self::custom(format_args!("invalid type: {found}, expected {expected}")),
        }
    }
}

/// A value of another type than the one that is expected. Apart from the generic code, of which there is much.
#[inline(never)]
fn mismatch(value: &Value, expected: &dyn Expected) -> Misfit {
    let found = match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(value) => Unexpected::Bool(*value),
        Value::String(value) => Unexpected::Str(value),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(value), _) => Unexpected::Unsigned(value),
            (_, Some(value)) => Unexpected::Signed(value),
            _ => Unexpected::Float(number.as_f64().unwrap_or_default()),
        },
    };
    Error::invalid_type(found, expected)
}

#[derive(Clone, Copy)]
struct Reader<'a>(&'a Value);

fn number<'a, V: Visitor<'a>>(number: &Number, visitor: V) -> Result<V::Value, Misfit> {
    match (number.as_u64(), number.as_i64()) {
        (Some(value), _) => visitor.visit_u64(value),
        (_, Some(value)) => visitor.visit_i64(value),
        _ => visitor.visit_f64(number.as_f64().unwrap_or_default()),
    }
}

fn elements<'a, V: Visitor<'a>>(list: &'a [Value], visitor: V) -> Result<V::Value, Misfit> {
    let mut elements = Elements { rest: list.iter(), index: 0 };
    let read = visitor.visit_seq(&mut elements)?;
    if elements.rest.len() == 0 { Ok(read) } else { Err(left(list.len(), &"fewer elements in array")) }
}

fn fields<'a, V: Visitor<'a>>(map: &'a Map<String, Value>, visitor: V) -> Result<V::Value, Misfit> {
    let mut fields = Fields { rest: map.iter(), next: None };
    let read = visitor.visit_map(&mut fields)?;
    if fields.rest.len() == 0 { Ok(read) } else { Err(left(map.len(), &"fewer elements in map")) }
}

#[inline(never)]
fn left(length: usize, expected: &dyn Expected) -> Misfit {
    Error::invalid_length(length, expected)
}

/// Methods that accept one form of JSON and call one function with its content.
macro_rules! only {
    ($form:ident($inner:ident) => $call:expr; $($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
            match self.0 {
                Value::$form($inner) => $call(visitor),
                other => Err(mismatch(other, &visitor)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(value) => number(value, visitor),
            Value::String(value) => visitor.visit_borrowed_str(value),
            Value::Array(list) => elements(list, visitor),
            Value::Object(map) => fields(map, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    only! { Bool(value) => |visitor: V| visitor.visit_bool(*value); deserialize_bool }
    only! {
        Number(value) => |visitor| number(value, visitor);
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16 deserialize_u32
        deserialize_u64 deserialize_f32 deserialize_f64
    }
    only! {
        String(value) => |visitor: V| visitor.visit_borrowed_str(value);
        deserialize_char deserialize_str deserialize_string deserialize_identifier
    }
    only! { Array(list) => |visitor| elements(list, visitor); deserialize_seq }
    only! { Object(map) => |visitor| fields(map, visitor); deserialize_map }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        self.deserialize_map(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        self.0.deserialize_enum(name, variants, visitor).map_err(Misfit::custom)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { bytes byte_buf unit unit_struct tuple tuple_struct }
}

struct Elements<'a> {
    rest: std::slice::Iter<'a, Value>,
    index: usize,
}

impl<'a> SeqAccess<'a> for &mut Elements<'a> {
    type Error = Misfit;

    fn next_element_seed<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<Option<S::Value>, Misfit> {
        let Some(value) = self.rest.next() else { return Ok(None) };
        match seed.deserialize(Reader(value)) {
            Ok(read) => {
                self.index += 1;
                Ok(Some(read))
            }
            Err(misfit) => Err(misfit.in_element(self.index)),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Fields<'a> {
    rest: Iter<'a>,
    next: Option<(&'a str, &'a Value)>,
}

impl<'a> MapAccess<'a> for &mut Fields<'a> {
    type Error = Misfit;

    fn next_key_seed<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<Option<S::Value>, Misfit> {
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        self.next = Some((name, value));
        seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<S::Value, Misfit> {
        let Some((name, value)) = self.next.take() else { return Err(Misfit::custom("a field without a name")) };
        seed.deserialize(Reader(value)).map_err(|misfit| misfit.in_field(name))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

#[cfg(test)]
mod tests;
