//! Texts of certificates, keys and hashes: PEM and hex.

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::{self, PemObject};

use super::PkiError;

/// PEM text of one DER value.
pub fn to_pem(label: &str, der: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = tail;
    }
    pem.push_str(&format!("-----END {label}-----\n"));
    pem
}

/// All certificates of a PEM text.
pub fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    let bad = |_: pem::Error| PkiError::Pem { what: what.to_owned(), wanted: "certificate" };
    let list: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(bad)?;
    if list.is_empty() { Err(PkiError::Pem { what: what.to_owned(), wanted: "certificate" }) } else { Ok(list) }
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        for nibble in [byte >> 4, byte & 15] {
            text.push(char::from_digit(nibble.into(), 16).unwrap_or('0'));
        }
        text
    })
}
