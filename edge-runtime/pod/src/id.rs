//! Names that both the daemon and the monitor can compute again: container ids and hashes.

use ring::digest::{SHA256, digest};

/// Id of one container attempt: 64 hex digits of SHA-256 over `POD_UID/NAME/ATTEMPT`.
///
/// Deterministic, so that an attempt can never run twice: the OCI runtime refuses an id that exists.
pub fn container_id(pod_uid: &str, container: &str, attempt: u32) -> String {
    sha256_hex(format!("{pod_uid}/{container}/{attempt}").as_bytes())
}

/// Lower-case hex of the SHA-256 of `bytes`.
pub fn sha256_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(64);
    for b in digest(&SHA256, bytes).as_ref() {
        // Writing to a String cannot fail.
        let _ = write!(out, "{b:02x}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_stable_and_distinct() {
        let a = container_id("u", "c", 0);
        assert_eq!(a.len(), 64);
        assert_eq!(a, container_id("u", "c", 0));
        assert_ne!(a, container_id("u", "c", 1));
        assert_ne!(a, container_id("u", "d", 0));
    }
}
