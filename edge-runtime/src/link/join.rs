//! From a join token to an identity: a key made here, a certificate signed by the bridge.
//!
//! The token names the cluster's authority by hash, so that the first connection is already to the right
//! bridge, and carries a secret that the bridge accepts once, for one node name. The bridge gives the same request the same answer for
//! a while, so an answer that is lost costs nothing: the key and the request are on the disk before they are sent.
//!
//! A claim token is for many boards. The bridge names each by its hardware, and a board may have to wait for an approval: it
//! sends the same request again until it is answered.

mod pauses;

use super::address::BridgeAddress;
use super::csr::{self, Signed};
use super::dial::{self, DialError};
use super::http;
use super::identity::{Identity, IdentityError, load_attempt, save_attempt};
use super::tls::{Time, TlsError, node_config, pinned_config};
use crate::net::proxy::Proxy;
use crate::paths::Paths;
use crate::sys::from_json::from_json;
use base64::{Engine, engine::general_purpose::STANDARD};
use edge_protocol::join_token::{CLAIM_SCHEME, NODE_SCHEME};
use ring::digest::{SHA256, digest};
use ring::error::Unspecified;
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use pauses::Pauses;

/// Timeout for the bridge's answer: it asks the API server first.
const ANSWER: Duration = Duration::from_secs(30);
/// Status of a refusal because too many devices ask at once, and seconds until the next attempt: the bridge counts by the
/// minute, and each attempt costs it a handshake.
const BUSY: (u16, u64) = (429, 30);
/// Longest wait that a bridge may ask of a board, in seconds.
const LONGEST_WAIT: u64 = 3600;

/// `sampan1.<sha256 hex of the authority's certificate>.<secret>`, or `sampan2.` for a claim token; the secret is the bridge's
/// business.
#[derive(Clone)]
pub struct Token {
    text: String,
    pin: [u8; 32],
    is_claim: bool,
}

/// What a board reports about itself to enrol. Texts that it does not know are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hardware {
    pub serial: String,
    /// Permanent network addresses, six octets in hex with colons.
    pub mac: Vec<String>,
    pub model: String,
    pub machine_id: String,
}

/// What a board has become.
#[derive(Debug)]
pub struct Enrolled {
    pub identity: Identity,
    /// Labels of its Node object, from the claim token.
    pub labels: BTreeMap<String, String>,
}

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("join token: must look like sampan1.<64 hex digits>.<secret>, or sampan2. for a claim token")]
    Token,
    #[error("no bridge address given")]
    NoBridge,
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("{bridge}: {source}")]
    Exchange { bridge: BridgeAddress, source: io::Error },
    #[error("{bridge} refused ({status}): {message}")]
    Refused {
        bridge: BridgeAddress,
        status: u16,
        message: String,
        /// Whether the body has the bridge's form.
        by_bridge: bool,
    },
    #[error("waiting to become node {node}: kubectl certificate approve {request}")]
    Waiting {
        node: String,
        request: String,
        /// Until the next attempt.
        seconds: u64,
    },
    #[error("{bridge}: bad answer: {problem}")]
    Answer { bridge: BridgeAddress, problem: String },
    #[error("cannot make a key: the kernel gives no random numbers")]
    Key(#[from] Unspecified),
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

impl JoinError {
    /// Whether every replica of the bridge would say the same, now and later: the token is of no use.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Token | Self::Refused { status: 401 | 403, by_bridge: true, .. })
    }

    /// Seconds until the next attempt, if the answer of the bridge says when one is of use.
    pub fn retry_seconds(&self) -> Option<u64> {
        match self {
            Self::Waiting { seconds, .. } => Some(*seconds),
            Self::Refused { status, by_bridge: true, .. } if *status == BUSY.0 => Some(BUSY.1),
            _ => None,
        }
    }
}

/// The device that asks for an identity.
#[derive(Clone, Copy)]
enum Who<'a> {
    Node(&'a str),
    Board(&'a Hardware),
}

#[derive(Serialize)]
struct Request<'a> {
    token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hardware: Option<&'a Hardware>,
    csr: String,
}

#[derive(Deserialize)]
struct Answer {
    certificate: String,
    ca: String,
    cluster: String,
    /// Only for a board.
    #[serde(default)]
    node: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Answer to a board that has to wait.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pending {
    request: String,
    node: String,
    retry_seconds: u64,
}

impl Token {
    /// # Errors
    /// The text is not a token of this version.
    pub fn parse(text: &str) -> Result<Self, JoinError> {
        let text = text.trim();
        let mut parts = text.splitn(3, '.');
        let (Some(scheme), Some(hash), Some(secret)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(JoinError::Token);
        };
        let is_claim = scheme == CLAIM_SCHEME;
        let is_token = (is_claim || scheme == NODE_SCHEME) && !secret.is_empty();
        let pin = unhex(hash).filter(|_| is_token).ok_or(JoinError::Token)?;
        Ok(Self { text: text.to_owned(), pin, is_claim })
    }

    /// Whether it is for many boards, which the bridge names.
    pub fn is_claim(&self) -> bool {
        self.is_claim
    }
}

/// Asks the bridges in turn until one answers or a refusal is final. The identity is returned, not saved.
///
/// # Errors
/// The error of the last bridge that was tried.
pub async fn join(
    paths: &Paths,
    token: &Token,
    bridges: &[BridgeAddress],
    node: &str,
    proxy: &Proxy,
) -> Result<Identity, JoinError> {
    Ok(exchange(paths, token, bridges, Who::Node(node), proxy).await?.identity)
}

/// Same as [`join`], with a claim token: the bridge names this board by its hardware. One attempt; the next one sends the
/// same request.
///
/// # Errors
/// [`JoinError::Waiting`] until the request is approved, or the error of the last bridge that was tried.
pub async fn enrol(
    paths: &Paths,
    token: &Token,
    bridges: &[BridgeAddress],
    hardware: &Hardware,
    proxy: &Proxy,
) -> Result<Enrolled, JoinError> {
    exchange(paths, token, bridges, Who::Board(hardware), proxy).await
}

async fn exchange(
    paths: &Paths,
    token: &Token,
    bridges: &[BridgeAddress],
    who: Who<'_>,
    proxy: &Proxy,
) -> Result<Enrolled, JoinError> {
    let (path, node, hardware) = match who {
        Who::Node(node) => ("/v1/join", Some(node), None),
        Who::Board(hardware) => ("/v1/enrol", None, Some(hardware)),
    };
    let Attempt { key, csr, .. } = attempt(paths, token, who)?;
    // No time was ever stored on a node that joins: the build's time is the floor.
    let tls = Arc::new(pinned_config(token.pin, Time::default())?);
    // Texts: serializing them cannot fail.
    let body = serde_json::to_vec(&Request { token: &token.text, node, hardware, csr }).expect("plain data");
    let mut failure = JoinError::NoBridge;
    for bridge in bridges {
        let exchange = async {
            let broken = |source| JoinError::Exchange { bridge: bridge.clone(), source };
            accept(bridge, token, &http::ask(bridge, proxy, &tls, (path, &body), ANSWER, broken).await?)
        };
        match exchange.await {
            Ok(Accepted { certificate, ca, answer }) => {
                let node = node.map_or(answer.node, str::to_owned);
                if node.is_empty() {
                    let problem = "node is empty".to_owned();
                    return Err(JoinError::Answer { bridge: bridge.clone(), problem });
                }
                let identity = Identity::new(node, answer.cluster, bridges.to_vec(), &certificate, &ca, &key);
                // Checked now rather than at every dial: a malformed certificate, or one for another key.
                node_config(&identity, Time::default())?;
                return Ok(Enrolled { identity, labels: answer.labels });
            }
            // The request waits at all bridges, because they share an API.
            Err(error) if error.is_final() || matches!(error, JoinError::Waiting { .. }) => return Err(error),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// One try to join, as it is kept until it has succeeded.
#[derive(Serialize, Deserialize)]
struct Attempt {
    /// Digest of the token and the node's name, or the board's serial number.
    of: String,
    /// PKCS#8, DER.
    key: Vec<u8>,
    /// PKCS#10, DER, base64.
    csr: String,
}

/// The attempt with this token that is on the disk, or a new one, which is there then. A card that was copied from a board
/// that had asked already makes its own key: its serial number is another.
fn attempt(paths: &Paths, token: &Token, who: Who<'_>) -> Result<Attempt, JoinError> {
    let name = match who {
        Who::Node(node) => node,
        Who::Board(hardware) => hardware.serial.as_str(),
    };
    let of = STANDARD.encode(digest(&SHA256, format!("{}\n{name}", token.text).as_bytes()));
    let kept = load_attempt(paths).and_then(|text| from_json::<Attempt>(&text).ok());
    if let Some(kept) = kept.filter(|kept| kept.of == of) {
        return Ok(kept);
    }
    let signed = match who {
        Who::Node(node) => csr::make(node),
        Who::Board(_) => csr::make_nameless(),
    };
    let Signed { key, request } = signed?;
    let attempt = Attempt { of, key, csr: STANDARD.encode(request) };
    // Texts and bytes: serializing them cannot fail.
    save_attempt(paths, &serde_json::to_vec(&attempt).expect("plain data"))?;
    Ok(attempt)
}

/// An answer whose certificates were read.
struct Accepted {
    certificate: CertificateDer<'static>,
    ca: CertificateDer<'static>,
    answer: Answer,
}

fn accept(bridge: &BridgeAddress, token: &Token, response: &http::Response) -> Result<Accepted, JoinError> {
    if !(200..300).contains(&response.status) {
        let message = dial::status_message(&response.body);
        let by_bridge = http::is_status(&response.body, response.status);
        return Err(JoinError::Refused { bridge: bridge.clone(), status: response.status, message, by_bridge });
    }
    let bad = |problem: String| JoinError::Answer { bridge: bridge.clone(), problem };
    if response.status == 202 {
        let pending: Pending = from_json(&response.body).map_err(|e| bad(e.to_string()))?;
        let Pending { request, node, retry_seconds } = pending;
        return Err(JoinError::Waiting { node, request, seconds: retry_seconds.clamp(1, LONGEST_WAIT) });
    }
    let answer: Answer = from_json(&response.body).map_err(|e| bad(e.to_string()))?;
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
    Ok(Accepted { certificate, ca, answer })
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
    fn a_repeated_join_sends_the_same_request() {
        let folder = tempfile::tempdir().expect("temp dir");
        let paths = Paths::new(folder.path());
        let token = |secret: &str| Token::parse(&format!("sampan1.{}.{secret}", "0a".repeat(32))).expect("a token");
        let csr = |token: &Token, node: &str| attempt(&paths, token, Who::Node(node)).expect("made").csr;
        let first = csr(&token("a"), "n");
        assert_eq!(csr(&token("a"), "n"), first, "after a power cut, too");
        assert_ne!(csr(&token("a"), "m"), first);
        let other = csr(&token("b"), "m");
        std::fs::write(paths.identity().join("identity.joining.json"), b"damaged").expect("written");
        assert_ne!(csr(&token("b"), "m"), other);
    }

    #[test]
    fn only_the_bridge_refuses_for_good() {
        let bridge: BridgeAddress = "https://b:1".parse().expect("an address");
        let token = Token::parse(&format!("sampan1.{}.x", "0a".repeat(32))).expect("a token");
        let said = |status: u16, body: String| {
            let response = http::Response { status, body: body.into_bytes() };
            accept(&bridge, &token, &response).err().expect("refused").is_final()
        };
        let own = |code: u16| format!("{{\"kind\":\"Status\",\"code\":{code},\"message\":\"used\"}}");
        assert!(said(401, own(401)) && said(403, own(403)));
        for status in [400, 404, 407, 413, 429, 500, 503] {
            assert!(!said(status, own(status)), "{status}");
        }
        assert!(!said(403, "<html>log in to the network</html>".into()) && !said(401, own(503)));
    }

    #[test]
    fn board_waits_as_long_as_the_bridge_says() {
        let token = Token::parse(&format!("sampan2.{}.x", "0a".repeat(32))).expect("a claim token");
        let answer = |seconds: u64| {
            let body = format!(r#"{{"request":"enrol-1","node":"gw-1","retrySeconds":{seconds}}}"#);
            let response = http::Response { status: 202, body: body.into_bytes() };
            accept(&"https://b:1".parse().expect("an address"), &token, &response).err().expect("it waits")
        };
        let waits = answer(30);
        assert!(token.is_claim() && !waits.is_final() && waits.retry_seconds() == Some(30));
        assert_eq!(waits.to_string(), "waiting to become node gw-1: kubectl certificate approve enrol-1");
        assert_eq!((answer(0).retry_seconds(), answer(u64::MAX).retry_seconds()), (Some(1), Some(LONGEST_WAIT)));
    }

    #[test]
    fn e5_board_among_too_many_asks_half_a_minute_later() {
        let token = Token::parse(&format!("sampan2.{}.x", "0a".repeat(32))).expect("a claim token");
        let refused = |status: u16, body: String| {
            let response = http::Response { status, body: body.into_bytes() };
            let error = accept(&"https://b:1".parse().expect("an address"), &token, &response).err().expect("refused");
            (error.is_final(), error.retry_seconds())
        };
        let own = |code: u16| format!("{{\"kind\":\"Status\",\"code\":{code},\"message\":\"later\"}}");
        assert_eq!(refused(429, own(429)), (false, Some(30)));
        assert_eq!(refused(503, own(503)), (false, None));
        assert_eq!(refused(429, "<html>of a proxy</html>".into()), (false, None));
    }

    #[test]
    fn board_asks_again_with_the_same_request() {
        let folder = tempfile::tempdir().expect("temp dir");
        let paths = Paths::new(folder.path());
        let token = Token::parse(&format!("sampan2.{}.x", "0a".repeat(32))).expect("a claim token");
        let csr = |serial: &str, mac: &[&str]| {
            let mac = mac.iter().map(|mac| (*mac).to_owned()).collect();
            let hardware = Hardware { serial: serial.to_owned(), mac, ..Hardware::default() };
            attempt(&paths, &token, Who::Board(&hardware)).expect("made").csr
        };
        let first = csr("1", &[]);
        assert_eq!(csr("1", &["02:00:5e:10:00:01"]), first, "after a power cut, too");
        assert_ne!(csr("2", &[]), first, "the card of another board");
    }

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
