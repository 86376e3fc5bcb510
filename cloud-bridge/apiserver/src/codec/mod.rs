//! Bytes and JSON: how bodies are read, checked against types, and written. Knows no resource and no store.

pub(crate) mod bounds;
pub(crate) mod decode;
pub(crate) mod jsonpath;
pub(crate) mod messages;
pub(crate) mod parse;
pub(crate) mod protobuf;
pub(crate) mod yaml;
