//! How a call ends: the codes of gRPC, and the text beside them as it is written on the wire.

use std::fmt;

use sampan_nghttp2::code;

/// Bytes of a text on the wire, where one of ours may take three: clients take header fields of 8 KiB altogether.
const MAX_TEXT: usize = 3 * 1_024;

/// gRPC's codes, <https://grpc.io/docs/guides/status-codes/>.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl Code {
    const ALL: [Self; 17] = [
        Self::Ok,
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// The code with this number. What is not known is UNKNOWN.
    #[must_use]
    pub fn of(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Unknown)
    }

    /// `grpc-status`: a number without zeros before it. What is not known is UNKNOWN.
    pub(super) fn parse(text: &[u8]) -> Self {
        let known = |code: &&Self| (**code as u8).to_string().as_bytes() == text;
        Self::ALL.iter().find(known).copied().unwrap_or(Self::Unknown)
    }

    /// Status of a stream that ends without one: gRPC over HTTP2, "Errors".
    pub(super) const fn of_reset(reset: u32) -> Self {
        match reset {
            code::REFUSED_STREAM => Self::Unavailable,
            code::CANCEL => Self::Cancelled,
            code::ENHANCE_YOUR_CALM => Self::ResourceExhausted,
            code::INADEQUATE_SECURITY => Self::PermissionDenied,
            _ => Self::Internal,
        }
    }

    /// Status of an answer that is not gRPC:
    /// <https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md>.
    pub(super) const fn of_http(status: &[u8]) -> Self {
        match status {
            b"400" => Self::Internal,
            b"401" => Self::Unauthenticated,
            b"403" => Self::PermissionDenied,
            b"404" => Self::Unimplemented,
            b"429" | b"502" | b"503" | b"504" => Self::Unavailable,
            _ => Self::Unknown,
        }
    }
}

/// How a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub code: Code,
    pub message: String,
}

impl Status {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({:?})", self.message, self.code)
    }
}

impl std::error::Error for Status {}

/// `grpc-message`: UTF-8, of which all but printable ASCII is percent-encoded.
pub(super) fn encode(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len().min(MAX_TEXT));
    for character in text.chars() {
        let mut bytes = [0; 4];
        let bytes = character.encode_utf8(&mut bytes).as_bytes();
        if out.len() + 3 * bytes.len() > MAX_TEXT {
            break;
        }
        for byte in bytes {
            match byte {
                b'%' | ..=0x1f | 0x7f.. => out.extend(format!("%{byte:02X}").bytes()),
                _ => out.push(*byte),
            }
        }
    }
    out
}

/// Decodes a message; keeps malformed escapes unchanged.
pub(super) fn decode(text: &[u8]) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, more)) = rest.split_first() {
        let encoded = |digits: &[u8]| {
            let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
            u8::from_str_radix(digits, 16).ok()
        };
        match more.split_at_checked(2) {
            Some((digits, after)) if *first == b'%' && encoded(digits).is_some() => {
                out.extend(encoded(digits));
                rest = after;
            }
            _ => {
                out.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn texts_come_back_as_they_were(text in ".{0,200}") {
            let encoded = encode(&text);
            prop_assert!(encoded.iter().all(|byte| matches!(byte, b' '..=b'~')), "{encoded:?}");
            prop_assert_eq!(decode(&encoded), text);
        }

        #[test]
        fn any_bytes_decode_to_a_text(text in prop::collection::vec(any::<u8>(), 0..64)) {
            let decoded = decode(&text);
            prop_assert!(decoded.len() <= 3 * text.len(), "a byte becomes the three of U+FFFD at most: {decoded:?}");
        }
    }

    #[test]
    fn texts_are_percent_encoded() {
        assert_eq!(encode("zu heiß: 90 %\n"), b"zu hei%C3%9F: 90 %25%0A");
        for (encoded, text) in
            [("a%41b", "aAb"), ("%", "%"), ("%4", "%4"), ("%zz", "%zz"), ("%+1", "%+1"), ("%ff", "\u{fffd}")]
        {
            assert_eq!(decode(encoded.as_bytes()), text);
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let encoded = encode(&"ß".repeat(5_000));
        assert!(encoded.len() <= MAX_TEXT);
        assert!(decode(&encoded).chars().all(|character| character == 'ß'));
    }

    #[test]
    fn codes_are_read_as_they_are_written() {
        for code in Code::ALL {
            assert_eq!((Code::parse((code as u8).to_string().as_bytes()), Code::of(code as u8)), (code, code));
        }
        assert_eq!([Code::of(17), Code::of(255)], [Code::Unknown; 2]);
        for strange in ["", "00", "17", "-1", " 1", "99999999999999999999"] {
            assert_eq!(Code::parse(strange.as_bytes()), Code::Unknown, "{strange}");
        }
    }
}
