//! A new key on P-256, and the request for its certificate (PKCS#10, RFC 2986). Sends nothing.

use ring::error::Unspecified;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};

/// Tags of DER (ITU-T X.690, 8.1.2).
const BIT_STRING: u8 = 0x03;
const UTF8_STRING: u8 = 0x0c;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// DER of what does not change: the version; the object ids of organizationName and commonName (RFC 5280, appendix A), of
/// id-ecPublicKey and prime256v1 (RFC 5480, 2.1.1), and of ecdsa-with-SHA256 (RFC 5758, 3.2); no attributes.
const VERSION: &[u8] = &[0x02, 1, 0];
const ORGANIZATION: &[u8] = &[0x06, 3, 0x55, 4, 10];
const COMMON_NAME: &[u8] = &[0x06, 3, 0x55, 4, 3];
const EC_KEY: &[u8] = &[0x06, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const P256: &[u8] = &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const ECDSA_SHA256: &[u8] = &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
const NO_ATTRIBUTES: &[u8] = &[0xa0, 0];

/// A key and the request that it has signed.
pub(super) struct Signed {
    /// PKCS#8, DER.
    pub(super) key: Vec<u8>,
    /// PKCS#10, DER.
    pub(super) request: Vec<u8>,
}

/// Makes a key for `node`. The names in the request are for people: the bridge takes them from the token or the certificate.
///
/// # Errors
/// The kernel gives no random numbers.
pub(super) fn make(node: &str) -> Result<Signed, Unspecified> {
    signed(&[name(ORGANIZATION, "system:nodes"), name(COMMON_NAME, &format!("system:node:{node}"))].concat())
}

/// Makes a key for a board whose name the bridge chooses: the request has no names.
///
/// # Errors
/// The kernel gives no random numbers.
pub(super) fn make_nameless() -> Result<Signed, Unspecified> {
    signed(&[])
}

/// `names` is DER: the elements of the subject.
fn signed(names: &[u8]) -> Result<Signed, Unspecified> {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random)?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &random)?;
    let kind = der(SEQUENCE, &[EC_KEY, P256]);
    let public = der(SEQUENCE, &[&kind, &bits(pair.public_key().as_ref())]);
    let asked = der(SEQUENCE, &[VERSION, &der(SEQUENCE, &[names]), &public, NO_ATTRIBUTES]);
    let signature = pair.sign(&random, &asked)?;
    let request = der(SEQUENCE, &[&asked, &der(SEQUENCE, &[ECDSA_SHA256]), &bits(signature.as_ref())]);
    Ok(Signed { key: document.as_ref().to_vec(), request })
}

/// A relative distinguished name.
fn name(kind: &[u8], text: &str) -> Vec<u8> {
    der(SET, &[&der(SEQUENCE, &[kind, &der(UTF8_STRING, &[text.as_bytes()])])])
}

/// Bytes as a string of bits, with none unused.
fn bits(bytes: &[u8]) -> Vec<u8> {
    der(BIT_STRING, &[&[0], bytes])
}

/// An element of these contents, one after the other. A request has less than 64 KiB.
fn der(tag: u8, contents: &[&[u8]]) -> Vec<u8> {
    let contents = contents.concat();
    let [.., high, low] = contents.len().to_be_bytes();
    let mut out = match (high, low) {
        (0, 0..=0x7f) => vec![tag, low],
        (0, _) => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    out.extend(contents);
    out
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateSigningRequestParams, DnType, DnValue, PublicKeyData};
    use rustls_pki_types::CertificateSigningRequestDer;

    use super::*;

    #[test]
    fn request_is_signed_and_names_the_node() {
        // The longest name of a node, and lengths of each form.
        for node in ["n", &"a".repeat(63), &"b".repeat(253)] {
            let Signed { key, request } = make(node).unwrap();
            // Checks the signature, too.
            let read = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(request)).unwrap();
            let names = &read.params.distinguished_name;
            assert_eq!(names.get(&DnType::OrganizationName), Some(&DnValue::Utf8String("system:nodes".into())));
            assert_eq!(names.get(&DnType::CommonName), Some(&DnValue::Utf8String(format!("system:node:{node}"))));
            let pair = rcgen::KeyPair::try_from(key).unwrap();
            assert_eq!(pair.der_bytes(), read.public_key.der_bytes());
        }
    }

    #[test]
    fn nameless_request_has_an_empty_subject() {
        let Signed { request, .. } = make_nameless().unwrap();
        let read = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(request)).unwrap();
        assert_eq!(read.params.distinguished_name.iter().count(), 0);
    }

    #[test]
    fn length_has_the_shortest_form() {
        let head = |length: usize| der(SEQUENCE, &[&vec![7; length]])[..4].to_vec();
        assert_eq!(head(0x7f), [SEQUENCE, 0x7f, 7, 7]);
        assert_eq!(head(0x80), [SEQUENCE, 0x81, 0x80, 7]);
        assert_eq!(head(0x100), [SEQUENCE, 0x82, 1, 0]);
    }
}
