//! Reading JSON from bytes.

use std::str::from_utf8;

use serde::Deserialize;
use serde::de::Error;

/// Same as [`serde_json::from_slice`], by way of [`serde_json::from_str`]: what reads a type is there once then, and not
/// for each of the two.
///
/// # Errors
/// The bytes are not UTF-8, not JSON, or not a `T`.
pub fn from_json<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> serde_json::Result<T> {
    serde_json::from_str(from_utf8(bytes).map_err(serde_json::Error::custom)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_is_json() {
        assert_eq!(from_json::<Vec<u8>>(b"[1, 2]").unwrap(), [1, 2]);
        assert!(from_json::<String>(b"\"\xff\"").unwrap_err().to_string().contains("utf-8"));
        assert!(from_json::<String>(b"").is_err());
    }
}
