//! Digests in names of objects.

use ring::digest::{SHA256, digest};

/// The SHA-256 of a text, in lower-case hexadecimal digits.
pub fn sha256_hex(text: &str) -> String {
    digest(&SHA256, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn digest_is_that_of_fips_180() {
    assert_eq!(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
