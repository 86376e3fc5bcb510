//! Claim tokens: `sampan2.<sha256 hex of the authority's certificate>.<random secret>`. One is on the card image of many
//! boards, and each board requests its own certificate with it.
//!
//! Only a hash of the secret is kept, as a Secret object in [`NAMESPACE`]; deleting the object ends the token at once,
//! because each request looks it up. The object also lists the requests that were made with the token, so all bridges
//! count the same uses, and a board that asks again is counted once. It is written with a resourceVersion precondition.

mod name;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use apimachinery::meta::rfc3339;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde::Serialize;
use serde_json::json;

use super::token::{self, Kind, Token, TokenError, secrets};
use super::{NAMESPACE, keep};

pub use name::{Hardware, Pattern};

/// Lifetime of a claim token unless another is given.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30 * 86_400);
/// Maximum lifetime.
pub const MAX_TTL: Duration = Duration::from_secs(365 * 86_400);
/// Maximum number of uses: 8 bytes each in the Secret object, which is read for each request and written for each board.
/// At the 600 boards a minute that a token allows, the writes of five minutes fit into the embedded API's history, 128 MiB.
pub const MAX_USES: usize = 5000;

/// Kind of its Secret objects.
const KIND: &str = "sampan.dev/claim-token";
/// Attempts to write a use while other bridges do the same.
const ATTEMPTS: usize = 10;

/// Why a claim token was not made or not taken. The texts are for the person at the board.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    #[error(transparent)]
    Text(#[from] TokenError),
    #[error("a claim token lives between 1 second and 365 days")]
    Ttl,
    #[error("a claim token has between 1 and {MAX_USES} uses")]
    Uses,
    #[error("the claim token is not known: it was deleted")]
    Unknown,
    #[error("secret {NAMESPACE}/{0} of a claim token is damaged: delete it with kubectl, and make another token")]
    Damaged(String),
    #[error("the claim token expired at {0}")]
    Expired(Timestamp),
    #[error("the claim token is used up: it was for {0} boards")]
    UsedUp(usize),
    #[error("there is no claim token {0:?}: see cloud-bridge token list")]
    NoToken(String),
    #[error("the uses of the claim token change all the time: ask again")]
    Contended,
    #[error("secret {NAMESPACE}/{name}: {source}")]
    Api { name: String, source: Box<kube::Error> },
}

/// What is chosen for a claim token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    pub pattern: Pattern,
    /// Number of boards.
    pub uses: usize,
    /// Whether the bridge approves requests of new names itself.
    pub auto: bool,
    /// Labels of the boards' Nodes.
    pub labels: BTreeMap<String, String>,
}

/// A claim token as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Name of its Secret object.
    pub name: String,
    pub terms: Terms,
    pub expires: Timestamp,
    hash: String,
    /// Numbers of requests.
    used: BTreeSet<u64>,
}

impl Claim {
    /// `None` for a Secret of another kind, or a damaged one.
    fn of(secret: &Secret) -> Option<Self> {
        let bytes = |name: &str| Some(secret.data.as_ref()?.get(name)?.0.as_slice());
        let field = |name: &str| str::from_utf8(bytes(name)?).ok();
        if secret.type_.as_deref() != Some(KIND) {
            return None;
        }
        let labels = field("labels")?.lines().filter_map(|line| line.split_once('='));
        let terms = Terms {
            pattern: field("namePattern")?.parse().ok()?,
            uses: field("uses")?.parse().ok()?,
            auto: field("approve")? == "auto",
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        };
        Some(Self {
            name: secret.metadata.name.clone()?,
            terms,
            expires: field("expires")?.parse().ok()?,
            hash: field("hash")?.to_owned(),
            used: unpack(bytes("used")?)?,
        })
    }

    /// # Errors
    /// [`ClaimError::Damaged`], or [`ClaimError::Unknown`] for a Secret of another kind.
    fn read(secret: &Secret) -> Result<Self, ClaimError> {
        Self::of(secret).ok_or_else(|| match secret.type_.as_deref() {
            Some(KIND) => ClaimError::Damaged(secret.metadata.name.clone().unwrap_or_default()),
            _ => ClaimError::Unknown,
        })
    }

    fn data(&self) -> BTreeMap<String, ByteString> {
        let terms = &self.terms;
        let labels: String = terms.labels.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        let fields = [
            ("hash", self.hash.clone()),
            ("namePattern", terms.pattern.as_str().to_owned()),
            ("expires", self.expires.to_string()),
            ("uses", terms.uses.to_string()),
            ("approve", if terms.auto { "auto" } else { "manual" }.to_owned()),
            ("labels", labels),
        ];
        let fields = fields.map(|(name, value)| (name, value.into_bytes()));
        let all = fields.into_iter().chain([("used", pack(&self.used))]);
        all.map(|(name, value)| (name.to_owned(), ByteString(value))).collect()
    }

    /// Whether this is the token's secret, and the token has not expired.
    fn check(&self, token: &Token, now: Timestamp) -> Result<(), ClaimError> {
        // A digest of a random secret: the time of a comparison reveals nothing.
        if self.hash != token.digest("hash") {
            return Err(ClaimError::Unknown);
        }
        if now >= self.expires { Err(ClaimError::Expired(self.expires)) } else { Ok(()) }
    }

    /// Whether the request with this number has used the token already.
    pub fn has_counted(&self, request: u64) -> bool {
        self.used.contains(&request)
    }

    /// Adds a use; false if this request is counted already.
    fn add(&mut self, request: u64) -> Result<bool, ClaimError> {
        if self.has_counted(request) {
            return Ok(false);
        }
        if self.used.len() >= self.terms.uses {
            return Err(ClaimError::UsedUp(self.terms.uses));
        }
        Ok(self.used.insert(request))
    }
}

fn pack(all: &BTreeSet<u64>) -> Vec<u8> {
    all.iter().flat_map(|one| one.to_be_bytes()).collect()
}

/// `None` if the last number lacks bytes.
fn unpack(bytes: &[u8]) -> Option<BTreeSet<u64>> {
    let (all, rest) = bytes.as_chunks::<8>();
    rest.is_empty().then(|| all.iter().map(|one| u64::from_be_bytes(*one)).collect())
}

/// Makes a claim token and keeps its hash.
///
/// # Errors
/// The terms are out of their bounds, or the API does not answer or refuses.
pub async fn create(
    client: &Client,
    authority: &str,
    terms: Terms,
    ttl: Duration,
    now: Timestamp,
) -> Result<Token, ClaimError> {
    if ttl < Duration::from_secs(1) || ttl > MAX_TTL {
        return Err(ClaimError::Ttl);
    }
    if terms.uses == 0 || terms.uses > MAX_USES {
        return Err(ClaimError::Uses);
    }
    let made = Token::random_of(Kind::Claim, authority)?;
    let (name, hash) = (made.name(), made.digest("hash"));
    keep::ensure_namespace(client).await.map_err(failed(&name))?;
    let claim = Claim { name, terms, expires: now + ttl, hash, used: BTreeSet::new() };
    let secret = secrets::object(KIND, &claim.name, claim.data());
    secrets::api(client).create(&PostParams::default(), &secret).await.map_err(failed(&claim.name))?;
    Ok(made)
}

/// Looks a token up by its text. Counts no use.
///
/// # Errors
/// It is not a claim token of this authority, was deleted or has expired, or the API does not answer.
pub async fn find(client: &Client, authority: &str, text: &str, now: Timestamp) -> Result<Claim, ClaimError> {
    let token = Token::parse_of(Kind::Claim, text)?;
    if token.authority != authority {
        return Err(TokenError::OtherAuthority.into());
    }
    let name = token.name();
    let secret = secrets::api(client).get_opt(&name).await.map_err(failed(&name))?.ok_or(ClaimError::Unknown)?;
    let claim = Claim::read(&secret)?;
    claim.check(&token, now)?;
    Ok(claim)
}

/// Counts a use of the token with this name for the request with this number, unless it is counted already.
///
/// # Errors
/// No use is left, the token was deleted, or the API does not answer.
pub async fn count(client: &Client, name: &str, request: u64) -> Result<(), ClaimError> {
    for _ in 0..ATTEMPTS {
        let secret = secrets::api(client).get_opt(name).await.map_err(failed(name))?.ok_or(ClaimError::Unknown)?;
        let mut claim = Claim::read(&secret)?;
        if !claim.add(request)? {
            return Ok(());
        }
        let patch = json!({
            "metadata": {"resourceVersion": secret.metadata.resource_version},
            "data": {"used": ByteString(pack(&claim.used))},
        });
        match secrets::api(client).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => return Err(ClaimError::Unknown),
            Err(error) => return Err(failed(name)(error)),
        }
    }
    Err(ClaimError::Contended)
}

/// A claim token as it is listed, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// Name of its Secret object.
    pub name: String,
    pub name_pattern: String,
    /// RFC 3339.
    pub expires: String,
    pub uses: usize,
    pub used: usize,
    /// `auto` or `manual`.
    pub approve: &'static str,
    pub labels: BTreeMap<String, String>,
}

impl From<Claim> for Listed {
    fn from(claim: Claim) -> Self {
        Self {
            name: claim.name,
            name_pattern: claim.terms.pattern.as_str().to_owned(),
            expires: rfc3339(claim.expires),
            uses: claim.terms.uses,
            used: claim.used.len(),
            approve: if claim.terms.auto { "auto" } else { "manual" },
            labels: claim.terms.labels,
        }
    }
}

/// Whether a Secret has a name of claim tokens.
pub fn is_name(name: &str) -> bool {
    name.starts_with(Kind::Claim.prefix())
}

/// Lists the claim tokens by pattern and end. Expired ones stay until the next token is made. Damaged ones are logged.
///
/// # Errors
/// The API does not answer, or refuses.
pub async fn list(client: &Client) -> Result<Vec<Listed>, ClaimError> {
    let list = secrets::list(client, KIND).await.map_err(failed("*"))?;
    let claims = list.iter().filter_map(|secret| match Claim::read(secret) {
        Ok(claim) => Some(claim),
        Err(ClaimError::Unknown) => None,
        Err(damaged) => {
            log::warn!("{damaged}");
            None
        }
    });
    let mut tokens: Vec<Listed> = claims.map(Listed::from).collect();
    tokens.sort_by(|a, b| (&a.name_pattern, &a.expires).cmp(&(&b.name_pattern, &b.expires)));
    Ok(tokens)
}

/// Deletes a claim token by the name of its Secret; other Secrets are left alone.
///
/// # Errors
/// [`ClaimError::NoToken`] if no claim token has this name, or the answer of the API.
pub async fn delete(client: &Client, name: &str) -> Result<Listed, ClaimError> {
    let none = || ClaimError::NoToken(name.to_owned());
    let secret = secrets::api(client).get_opt(name).await.map_err(failed(name))?.ok_or_else(none)?;
    let claim = Claim::read(&secret).map_err(|error| match error {
        ClaimError::Unknown => none(),
        damaged => damaged,
    })?;
    if secrets::delete(client, &secret, false).await.map_err(failed(name))? { Ok(claim.into()) } else { Err(none()) }
}

/// Removes expired tokens of both kinds.
///
/// # Errors
/// The API does not answer, or refuses.
pub async fn clear_expired(client: &Client, now: Timestamp) -> Result<(), kube::Error> {
    token::clear_expired(client, now).await?;
    secrets::clear(client, KIND, |secret| Claim::of(secret).is_some_and(|claim| now >= claim.expires)).await
}

fn failed(name: &str) -> impl Fn(kube::Error) -> ClaimError + use<> {
    let name = name.to_owned();
    move |source| ClaimError::Api { name: name.clone(), source: Box::new(source) }
}

#[cfg(test)]
mod tests;
