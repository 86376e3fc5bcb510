//! The uid of a Device. Kubernetes makes UUIDs (RFC 9562), whose text is 36 bytes long: held as their 16 bytes, since
//! there are thousands. Any other text is held unchanged.

use std::fmt;

/// Where a UUID has a `-`.
const DASHES: [usize; 4] = [8, 13, 18, 23];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Uid {
    Uuid([u8; 16]),
    Other(Box<str>),
}

impl Default for Uid {
    fn default() -> Self {
        Self::Other(Box::default())
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        uuid(text).map_or_else(|| Self::Other(text.into()), Self::Uuid)
    }
}

/// Only of a text that is written as [`Uid`] writes it: in lower case.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let text: &[u8; 36] = text.as_bytes().try_into().ok()?;
    if DASHES.iter().any(|at| text.get(*at) != Some(&b'-')) {
        return None;
    }
    let mut digits = text.iter().enumerate().filter(|(at, _)| !DASHES.contains(at)).map(|(_, byte)| digit(*byte));
    let mut bytes = [0; 16];
    for byte in &mut bytes {
        *byte = (digits.next()?? << 4) | digits.next()??;
    }
    Some(bytes)
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = match self {
            Self::Uuid(bytes) => bytes,
            Self::Other(text) => return f.write_str(text),
        };
        for (at, byte) in bytes.iter().enumerate() {
            let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUID: &str = "0d9ef2a6-7a3c-4a0e-8a53-0a7a5c1f2b11";

    #[test]
    fn uuid_needs_no_heap() {
        assert!(matches!(Uid::from(UUID), Uid::Uuid([0x0d, 0x9e, .., 0x11])));
        for other in [
            "",
            "uid-1",
            &UUID.to_uppercase(),
            &UUID.replace('-', ""),
            &UUID.replace('-', "0"),
            &UUID.replace('f', "g"),
            &format!("{UUID}0"),
        ] {
            assert_eq!(Uid::from(other), Uid::Other(other.into()));
        }
    }

    proptest! {
        #[test]
        fn the_text_is_the_same_again(
            text in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-fA-F-]{36}|.{0,40}",
        ) {
            prop_assert_eq!(Uid::from(&*text).to_string(), text);
        }
    }
}
