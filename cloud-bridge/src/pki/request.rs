//! Requests for certificates: whether one can be signed, and for whom. Pure.

use rcgen::{CertificateSigningRequestParams, DistinguishedName, DnType, DnValue, PKCS_ECDSA_P256_SHA256};
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use super::PkiError;
use super::identity::{BRIDGE_GROUP, BRIDGE_USER, NODE_GROUP, NODE_USER_PREFIX, node_user};

/// Longest request that is looked at; a P-256 request has about 250 bytes.
pub(super) const MAX_REQUEST: usize = 8 * 1024;

/// A node's request as it can be signed. Signs nothing, so it costs a stranger's request little.
///
/// # Errors
/// [`PkiError::Request`] when it is unreadable, has a wrong signature, another kind of key or the name of another node.
pub fn check_node_request(node: &str, request: &[u8]) -> Result<CertificateSigningRequestParams, PkiError> {
    if request.len() > MAX_REQUEST {
        return Err(PkiError::Request(format!("longer than {MAX_REQUEST} bytes")));
    }
    let request = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(request))
        .map_err(|e| PkiError::Request(e.to_string()))?;
    if *request.public_key.algorithm() != PKCS_ECDSA_P256_SHA256 {
        return Err(PkiError::Request("the key is not ECDSA P-256".to_owned()));
    }
    let wanted = node_user(node);
    if let Some(asked) = common_name(&request.params.distinguished_name)
        && asked.starts_with(NODE_USER_PREFIX)
        && asked != wanted
    {
        return Err(PkiError::Request(format!("asks for {asked}, but is made by {wanted}")));
    }
    Ok(request)
}

/// A user's request, PEM of PKCS #10, as it can be signed.
///
/// # Errors
/// [`PkiError::Request`] when it is unreadable, has a wrong signature or no name, or asks for the identity of a node or
/// a bridge.
pub(super) fn check_person_request(request: &[u8]) -> Result<CertificateSigningRequestParams, PkiError> {
    let wrong = |why: &str| PkiError::Request(why.to_owned());
    let text = str::from_utf8(request).map_err(|_| wrong("is no PEM"))?;
    let request =
        CertificateSigningRequestParams::from_pem(text).map_err(|error| PkiError::Request(error.to_string()))?;
    let name = &request.params.distinguished_name;
    let user = common_name(name).filter(|user| !user.is_empty()).ok_or_else(|| wrong("names no user (CN)"))?;
    let groups: Vec<String> = name
        .iter()
        .filter(|(kind, _)| **kind == DnType::OrganizationName)
        .filter_map(|(_, value)| text_of(value))
        .collect();
    // This library keeps one value of each kind.
    let asked = X509CertificationRequest::from_der(&request_der(text)?)
        .map_or(0, |(_, asked)| asked.certification_request_info.subject.iter_organization().count());
    if asked != groups.len() {
        return Err(wrong("names several groups (O): one can be signed, more are given by bindings"));
    }
    if user.starts_with(NODE_USER_PREFIX) || groups.iter().any(|group| group == NODE_GROUP) {
        return Err(wrong("asks for the identity of a node, which gets its certificate when it joins"));
    }
    if user == BRIDGE_USER || groups.iter().any(|group| group == BRIDGE_GROUP) {
        return Err(wrong("asks for the identity of a bridge, which makes its certificate itself"));
    }
    Ok(request)
}

fn common_name(name: &DistinguishedName) -> Option<String> {
    text_of(name.get(&DnType::CommonName)?)
}

fn request_der(pem: &str) -> Result<Vec<u8>, PkiError> {
    let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes());
    der.map(|der| der.to_vec()).map_err(|_| PkiError::Request("is no PEM of a certificate request".to_owned()))
}

fn text_of(value: &DnValue) -> Option<String> {
    match value {
        DnValue::Utf8String(text) => Some(text.clone()),
        DnValue::PrintableString(text) => Some(text.as_str().to_owned()),
        DnValue::Ia5String(text) => Some(text.as_str().to_owned()),
        _ => None,
    }
}
