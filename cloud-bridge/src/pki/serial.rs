//! Serial numbers that say when a certificate was issued: its `notBefore` cannot, since it is the same for all.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::SerialNumber;
use ring::rand::SecureRandom;

use super::PkiError;

const MARK: [u8; 4] = *b"smp\x01";

/// Four bytes of mark, six of milliseconds since 1970, six of randomness.
pub(super) fn new(now: SystemTime, random: &dyn SecureRandom) -> Result<SerialNumber, PkiError> {
    let millis = u64::try_from(now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&MARK);
    bytes[4..10].copy_from_slice(&millis.to_be_bytes()[2..]);
    random.fill(&mut bytes[10..]).map_err(|_| PkiError::Random)?;
    Ok(SerialNumber::from_slice(&bytes))
}

/// When a certificate with this serial was issued; 1970 for one that does not say.
pub(super) fn issued(serial: &[u8]) -> SystemTime {
    let millis = match serial.strip_prefix(&MARK) {
        Some([a, b, c, d, e, f, ..]) => u64::from_be_bytes([0, 0, *a, *b, *c, *d, *e, *f]),
        _ => 0,
    };
    UNIX_EPOCH + Duration::from_millis(millis)
}
