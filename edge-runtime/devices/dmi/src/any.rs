//! Values of a driver's configuration: `google.protobuf.Any` around the wrappers of `google/protobuf/wrappers.proto`.

use std::collections::BTreeMap;

use prost::Message;

/// Values by key, of any type that a mapper knows.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CustomizedValue {
    #[prost(btree_map = "string, message", tag = "1")]
    pub data: BTreeMap<String, Any>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// Encoded; empty for the type's default value.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct StringValue {
    #[prost(string, tag = "1")]
    value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct FloatValue {
    #[prost(float, tag = "1")]
    value: f32,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct Int64Value {
    #[prost(int64, tag = "1")]
    value: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct BoolValue {
    #[prost(bool, tag = "1")]
    value: bool,
}

impl Any {
    fn of(name: &str, value: &impl Message) -> Self {
        Self { type_url: format!("type.googleapis.com/google.protobuf.{name}"), value: value.encode_to_vec() }
    }

    #[must_use]
    pub fn string(value: String) -> Self {
        Self::of("StringValue", &StringValue { value })
    }

    #[must_use]
    pub fn float(value: f32) -> Self {
        Self::of("FloatValue", &FloatValue { value })
    }

    #[must_use]
    pub fn int64(value: i64) -> Self {
        Self::of("Int64Value", &Int64Value { value })
    }

    #[must_use]
    pub fn boolean(value: bool) -> Self {
        Self::of("BoolValue", &BoolValue { value })
    }
}
