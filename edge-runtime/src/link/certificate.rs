//! End of a certificate's validity (RFC 5280, 4.1.2.5). Trust is checked by the TLS library, which does not expose the
//! end. Pure.

use std::time::SystemTime;

use jiff::Timestamp;

/// Tags of DER (ITU-T X.690, 8.1.2).
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// `None` if this is not a certificate of RFC 5280.
pub(super) fn not_after(der: &[u8]) -> Option<SystemTime> {
    let (certificate, _) = expect(SEQUENCE, der)?;
    let (mut fields, _) = expect(SEQUENCE, certificate)?;
    if let Some((_, rest)) = expect(VERSION, fields) {
        fields = rest;
    }
    // serialNumber, signature, issuer
    for _ in 0..3 {
        (_, _, fields) = element(fields)?;
    }
    let (validity, _) = expect(SEQUENCE, fields)?;
    let (_, _, rest) = element(validity)?;
    let (tag, text, _) = element(rest)?;
    time(tag, std::str::from_utf8(text).ok()?)
}

/// `YYMMDDHHMMSSZ` up to the year 2049, `YYYYMMDDHHMMSSZ` from then on.
fn time(tag: u8, text: &str) -> Option<SystemTime> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let digits = match (tag, digits.len()) {
        (UTC_TIME, 12) if *digits < *"50" => format!("20{digits}"),
        (UTC_TIME, 12) => format!("19{digits}"),
        (GENERALIZED_TIME, 14) => digits.to_owned(),
        _ => return None,
    };
    let (date, clock) = digits.split_at(8);
    format!("{date}T{clock}Z").parse::<Timestamp>().ok().map(SystemTime::from)
}

/// Contents of the first element, and what follows it.
fn expect(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    element(der).filter(|(found, ..)| *found == tag).map(|(_, contents, rest)| (contents, rest))
}

/// Tag and contents of the first element, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // Long form: the number of length bytes that follow. No certificate needs more than three.
        0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(year: i32) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["a".repeat(60); 9]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(year, 3, 4));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_end_is_found_on_both_sides_of_2050() {
        for (year, end) in [(2031, "2031-03-04T00:00:00Z"), (2060, "2060-03-04T00:00:00Z")] {
            let end: Timestamp = end.parse().unwrap();
            assert_eq!(not_after(&certificate(year)), Some(SystemTime::from(end)));
        }
        let before_1970 = SystemTime::UNIX_EPOCH - Duration::from_secs(86_400);
        assert_eq!(time(UTC_TIME, "691231000000Z"), Some(before_1970));
        for odd in ["", "Z", "3103040000Z", "310304000000", "319904000000Z", "\u{663}10304000000Z", "+10304000000Z"] {
            assert_eq!(time(UTC_TIME, odd), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_end_the_program(at in 0usize..400, byte: u8, cut in 0usize..400, any: Vec<u8>) {
            let mut bytes = certificate(2031);
            prop_assert_eq!(not_after(&bytes[..cut]), None, "a certificate without its end");
            bytes[at] = byte;
            let _ = (not_after(&bytes), not_after(&bytes[..cut]), not_after(&any));
        }
    }
}
