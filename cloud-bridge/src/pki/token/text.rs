//! The text of a join token or claim token, and its parts. Pure but for randomness.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use edge_protocol::join_token;
use jiff::Timestamp;
use ring::{digest, rand::SecureRandom, rand::SystemRandom};

use crate::pki::NAMESPACE;
use crate::pki::encoding::hex;

/// The two kinds of tokens. Each has its own scheme, and its own Secret objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One node joins with it, once.
    Node,
    /// Many boards request their certificates with it (`pki::claim`).
    Claim,
}

impl Kind {
    fn scheme(self) -> &'static str {
        match self {
            Self::Node => join_token::NODE_SCHEME,
            Self::Claim => join_token::CLAIM_SCHEME,
        }
    }

    /// What names of its Secret objects begin with.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Node => "join-",
            Self::Claim => "claim-",
        }
    }
}

/// Why a token was not made or not taken. The texts are for the person at the node.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("{0:?} is not a node name: lower-case letters, digits, '-' and '.' only")]
    NodeName(String),
    #[error("a token lives between 1 second and 7 days")]
    Ttl,
    #[error("{}", malformed(.0))]
    Malformed(Kind),
    #[error("the join token was made by another bridge: its authority is not this one")]
    OtherAuthority,
    #[error("the join token is not known: it was used already, was revoked, or has expired long ago")]
    Unknown,
    #[error("the join token was used already")]
    Used,
    #[error("the join token expired at {0}")]
    Expired(Timestamp),
    #[error("the join token is for another node than {0:?}")]
    OtherNode(String),
    #[error("there is no unused join token {0:?}: see cloud-bridge token list")]
    NoToken(String),
    #[error("the random generator of the system failed")]
    Random,
    #[error("secret {NAMESPACE}/{name}: {source}")]
    Api { name: String, source: Box<kube::Error> },
}

fn malformed(kind: &Kind) -> String {
    let what = match kind {
        Kind::Node => "join token",
        Kind::Claim => "claim token",
    };
    format!("this is not a {what}: it must look like {}.<64 hex digits>.<secret>", kind.scheme())
}

/// A token's text, taken apart.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    kind: Kind,
    /// Lower-case hex SHA-256 of the authority's certificate.
    pub authority: String,
    pub(super) secret: String,
}

impl Token {
    /// A fresh one for one node.
    pub fn random(authority: &str) -> Result<Self, TokenError> {
        Self::random_of(Kind::Node, authority)
    }

    /// A fresh one of this kind.
    pub(crate) fn random_of(kind: Kind, authority: &str) -> Result<Self, TokenError> {
        let mut bytes = [0; 24];
        SystemRandom::new().fill(&mut bytes).map_err(|_| TokenError::Random)?;
        Ok(Self { kind, authority: authority.to_owned(), secret: URL_SAFE_NO_PAD.encode(bytes) })
    }

    /// Takes the text of a token for one node apart. Nodes of older versions also send its place ([`join_token`]), which
    /// is ignored.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        Self::parse_of(Kind::Node, text)
    }

    /// Takes the text of a token of this kind apart.
    pub(crate) fn parse_of(kind: Kind, text: &str) -> Result<Self, TokenError> {
        let (text, _) = join_token::split(text).map_err(|_| TokenError::Malformed(kind))?;
        let mut parts = text.split('.');
        let (Some(scheme), Some(authority), Some(secret)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(TokenError::Malformed(kind));
        };
        let is_hash = authority.len() == 64 && authority.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let is_secret = (16..=128).contains(&secret.len())
            && secret.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if scheme != kind.scheme() || !is_hash || !is_secret {
            return Err(TokenError::Malformed(kind));
        }
        Ok(Self { kind, authority: authority.to_owned(), secret: secret.to_owned() })
    }

    /// What the person carries to the node.
    pub fn text(&self) -> String {
        format!("{}.{}.{}", self.kind.scheme(), self.authority, self.secret)
    }

    /// Name of the Secret object. It follows from the token, and does not give it away.
    pub fn name(&self) -> String {
        format!("{}{}", self.kind.prefix(), &self.digest("name")[..20])
    }

    pub(crate) fn digest(&self, purpose: &str) -> String {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(purpose.as_bytes());
        context.update(&[0]);
        context.update(self.secret.as_bytes());
        hex(context.finish().as_ref())
    }
}
