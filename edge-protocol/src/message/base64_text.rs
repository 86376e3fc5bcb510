//! Stream bytes as base64 text.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serializer, de::Error};
use std::borrow::Cow;

pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&STANDARD.encode(bytes))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = Cow::<str>::deserialize(from)?;
    STANDARD.decode(text.as_bytes()).map_err(|e| D::Error::custom(format!("data is not base64: {e}")))
}
