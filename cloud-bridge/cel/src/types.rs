//! Types that rules are checked against.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// Type of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Type {
    /// Known only when a rule runs.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Rc<Type>),
    Map(Rc<Type>, Rc<Type>),
    Object(Rc<BTreeMap<String, Type>>),
    Optional(Rc<Type>),
    /// Type of a Kubernetes library: `quantity`, `ip`...
    Library(&'static str),
    /// Type parameter of a signature.
    Parameter,
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Dyn => "dyn",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::List(item) => return write!(f, "list({item})"),
            Self::Map(key, value) => return write!(f, "map({key}, {value})"),
            Self::Object(_) => "object",
            Self::Optional(inner) => return write!(f, "optional_type({inner})"),
            Self::Library(name) => name,
            Self::Parameter => "T",
        };
        f.write_str(name)
    }
}

impl Type {
    fn numeric(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// Whether values of the two types can be held against each other by `==`.
    pub(crate) fn comparable(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn | Self::Null, _) | (_, Self::Dyn | Self::Null) => true,
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.comparable(b),
            (Self::Map(a, b), Self::Map(c, d)) => a.comparable(c) && b.comparable(d),
            (a, b) => a == b,
        }
    }

    /// Whether the two are ordered by `<`, also across kinds of numbers.
    pub(crate) fn ordered(&self, other: &Self) -> bool {
        let has_order =
            |one: &Self| matches!(one, Self::Bool | Self::String | Self::Bytes | Self::Duration | Self::Timestamp);
        match (self, other) {
            (Self::Dyn, b) => *b == Self::Dyn || b.numeric() || has_order(b),
            (a, Self::Dyn) => a.numeric() || has_order(a),
            (a, b) => (a.numeric() && b.numeric()) || (a == b && has_order(a)),
        }
    }

    /// Whether a value of type `given` fits here; `bound` is the type of `T`, if it is known.
    pub(crate) fn takes(&self, given: &Self, bound: &mut Option<Type>) -> bool {
        match (self, given) {
            (Self::Parameter, given) => match bound {
                None | Some(Self::Dyn) => {
                    *bound = Some(given.clone());
                    true
                }
                Some(bound) => bound.comparable(given),
            },
            (Self::Dyn, _) | (_, Self::Dyn) => true,
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.takes(b, bound),
            (Self::Map(a, b), Self::Map(c, d)) => a.takes(c, bound) && b.takes(d, bound),
            (a, b) => a == b,
        }
    }

    /// Replaces `T` by its binding.
    pub(crate) fn with(&self, bound: Option<&Type>) -> Self {
        match self {
            Self::Parameter => bound.cloned().unwrap_or(Self::Dyn),
            Self::List(item) => Self::List(Rc::new(item.with(bound))),
            Self::Optional(inner) => Self::Optional(Rc::new(inner.with(bound))),
            Self::Map(key, value) => Self::Map(Rc::new(key.with(bound)), Rc::new(value.with(bound))),
            other => other.clone(),
        }
    }

    /// The type of either of two values.
    pub(crate) fn join(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Dyn | Self::Null, other) | (other, Self::Dyn | Self::Null) => other.clone(),
            (Self::List(a), Self::List(b)) => Self::List(Rc::new(a.join(b))),
            (Self::Optional(a), Self::Optional(b)) => Self::Optional(Rc::new(a.join(b))),
            (a, b) if a == b => a.clone(),
            _ => Self::Dyn,
        }
    }
}
