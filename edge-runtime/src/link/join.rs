//! From a join token to an identity: a key made here, a certificate signed by the bridge.
//!
//! The token names the cluster's authority by hash, so that the first connection is already to the right
//! bridge, and carries a secret that the bridge accepts once, for one node name.

use super::address::BridgeAddress;
use super::dial::DialError;
use super::http;
use super::identity::{Identity, IdentityError};
use super::tls::{Time, TlsError, node_config, pinned_config};
use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};
use ring::digest::{SHA256, digest};
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// For the bridge's answer: it asks the API server before.
const ANSWER: Duration = Duration::from_secs(30);

/// `sampan1.<sha256 hex of the authority's certificate>.<secret>`; the secret is the bridge's business.
#[derive(Clone)]
pub struct Token {
    text: String,
    pin: [u8; 32],
}

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("join token: must look like sampan1.<64 hex digits>.<secret>")]
    Token,
    #[error("no bridge address given")]
    NoBridge,
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("{bridge}: {source}")]
    Exchange { bridge: BridgeAddress, source: io::Error },
    /// With a status of 4xx another replica of the bridge would say the same.
    #[error("{bridge} refused ({status}): {message}")]
    Refused { bridge: BridgeAddress, status: u16, message: String },
    #[error("{bridge}: bad answer: {problem}")]
    Answer { bridge: BridgeAddress, problem: String },
    #[error("making a key: {0}")]
    Key(#[from] rcgen::Error),
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

#[derive(Serialize)]
struct Request<'a> {
    token: &'a str,
    node: &'a str,
    csr: String,
}

#[derive(Deserialize)]
struct Answer {
    certificate: String,
    ca: String,
    cluster: String,
}

impl Token {
    /// # Errors
    /// The text is no token of this version.
    pub fn parse(text: &str) -> Result<Self, JoinError> {
        let text = text.trim();
        let mut parts = text.splitn(3, '.');
        let (Some("sampan1"), Some(hash), Some(secret)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(JoinError::Token);
        };
        let pin = unhex(hash).filter(|_| !secret.is_empty()).ok_or(JoinError::Token)?;
        Ok(Self { text: text.to_owned(), pin })
    }
}

/// Asks the bridges in turn until one answers; a refusal is final. The identity is returned, not saved.
///
/// # Errors
/// Of the last bridge that was tried.
pub async fn join(token: &Token, bridges: &[BridgeAddress], node: &str) -> Result<Identity, JoinError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let csr = STANDARD.encode(request(node, &key)?);
    // No time was ever stored on a node that joins: the build's time is the floor.
    let tls = Arc::new(pinned_config(token.pin, Time::default())?);
    // Three strings: serializing them cannot fail.
    let body = serde_json::to_vec(&Request { token: &token.text, node, csr }).expect("strings are plain data");
    let mut failure = JoinError::NoBridge;
    for bridge in bridges {
        let exchange = async {
            let broken = |source| JoinError::Exchange { bridge: bridge.clone(), source };
            accept(bridge, token, &http::ask(bridge, &tls, ("/v1/join", &body), ANSWER, broken).await?)
        };
        match exchange.await {
            Ok((certificate, ca, cluster)) => {
                let key = key.serialize_der();
                let identity = Identity::new(node.to_owned(), cluster, bridges.to_vec(), &certificate, &ca, &key);
                // Found now rather than at every dial: a certificate that is none, or is for another key.
                node_config(&identity, Time::default())?;
                return Ok(identity);
            }
            Err(refused @ JoinError::Refused { status: 400..=499, .. }) => return Err(refused),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// PKCS#10 request (DER). The names in it are for people: the bridge takes them from the token.
pub(super) fn request(node: &str, key: &KeyPair) -> Result<Vec<u8>, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    Ok(params.serialize_request(key)?.der().to_vec())
}

type Accepted = (CertificateDer<'static>, CertificateDer<'static>, String);

fn accept(bridge: &BridgeAddress, token: &Token, response: &http::Response) -> Result<Accepted, JoinError> {
    if !(200..300).contains(&response.status) {
        let message = http::status_message(&response.body);
        return Err(JoinError::Refused { bridge: bridge.clone(), status: response.status, message });
    }
    let bad = |problem: String| JoinError::Answer { bridge: bridge.clone(), problem };
    let answer: Answer = serde_json::from_slice(&response.body).map_err(|e| bad(e.to_string()))?;
    let der = |field: &str, text: &str| {
        STANDARD.decode(text).map(CertificateDer::from).map_err(|e| bad(format!("{field} is not base64: {e}")))
    };
    let certificate = der("certificate", &answer.certificate)?;
    let ca = der("ca", &answer.ca)?;
    if digest(&SHA256, &ca).as_ref() != token.pin {
        return Err(bad("ca is not the authority that the token names".into()));
    }
    if answer.cluster.is_empty() {
        return Err(bad("cluster is empty".into()));
    }
    Ok((certificate, ca, answer.cluster))
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let text = text.as_bytes();
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let mut bytes = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_checked_before_anything_is_dialled() {
        let hash = "0a".repeat(32);
        let token = Token::parse(&format!(" sampan1.{hash}.se.cret\n")).expect("a token");
        assert_eq!((token.pin, token.text.len()), ([10; 32], 8 + 64 + 1 + 7));
        for bad in
            ["", "sampan1", "sampan2.aa.b", &format!("sampan1.{hash}."), &format!("sampan1.{}.x", "0g".repeat(32))]
        {
            assert!(matches!(Token::parse(bad), Err(JoinError::Token)), "{bad}");
        }
    }
}
