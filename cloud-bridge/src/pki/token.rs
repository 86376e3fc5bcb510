//! Join tokens: `sampan1.<sha256 hex of the authority's certificate>.<random secret>`.
//!
//! A token is good for one node name, once, for a limited time. Only a hash of its secret is kept, as a
//! Secret object in [`NAMESPACE`](super::NAMESPACE), so that all replicas know it and deleting the
//! object revokes it. Using it is a delete with a resourceVersion precondition: of two that try, one wins.

pub(super) mod secrets;
mod text;

use std::collections::BTreeMap;
use std::time::Duration;

use apimachinery::meta::rfc3339;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::PostParams;
use serde::Serialize;

use super::identity::is_node_name;
use super::keep;

pub use text::{Kind, Token, TokenError};

/// How long a token is good for unless said otherwise.
pub const DEFAULT_TTL: Duration = Duration::from_secs(3600);
/// No token is good for longer.
pub const MAX_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// Kind of its Secret objects.
const KIND: &str = "sampan.dev/join-token";

/// What is kept of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    hash: String,
    node: String,
    expires: Timestamp,
}

impl Kept {
    fn of(secret: &Secret) -> Option<Self> {
        let field = |name: &str| {
            let bytes = secret.data.as_ref()?.get(name)?;
            std::str::from_utf8(&bytes.0).ok()
        };
        Some(Self {
            hash: field("hash")?.to_owned(),
            node: field("node")?.to_owned(),
            expires: field("expires")?.parse().ok()?,
        })
    }

    fn data(&self) -> BTreeMap<String, ByteString> {
        let fields = [("hash", self.hash.clone()), ("node", self.node.clone()), ("expires", self.expires.to_string())];
        fields.into_iter().map(|(name, value)| (name.to_owned(), ByteString(value.into_bytes()))).collect()
    }

    /// Whether this token may be used for this node now.
    fn check(&self, token: &Token, node: &str, now: Timestamp) -> Result<(), TokenError> {
        // A digest of a random secret: nothing can be learnt from the time that comparing takes.
        if self.hash != token.digest("hash") {
            return Err(TokenError::Unknown);
        }
        if now >= self.expires {
            return Err(TokenError::Expired(self.expires));
        }
        if self.node != node {
            return Err(TokenError::OtherNode(node.to_owned()));
        }
        Ok(())
    }
}

/// Makes a token for a node and keeps its hash. [`clear_expired`] belongs behind the last of several.
pub async fn create(
    client: &Client,
    authority: &str,
    node: &str,
    ttl: Duration,
    now: Timestamp,
) -> Result<Token, TokenError> {
    if !is_node_name(node) {
        return Err(TokenError::NodeName(node.to_owned()));
    }
    if ttl < Duration::from_secs(1) || ttl > MAX_TTL {
        return Err(TokenError::Ttl);
    }
    let token = Token::random(authority)?;
    let name = token.name();
    let failed = |source| TokenError::Api { name: name.clone(), source: Box::new(source) };
    keep::ensure_namespace(client).await.map_err(failed)?;
    let kept = Kept { hash: token.digest("hash"), node: node.to_owned(), expires: now + ttl };
    let secret = secrets::object(KIND, &name, kept.data());
    secrets::api(client).create(&PostParams::default(), &secret).await.map_err(failed)?;
    Ok(token)
}

/// Redeems a token for this node. After `Ok`, no other client can use it.
pub async fn redeem(
    client: &Client,
    authority: &str,
    token: &str,
    node: &str,
    now: Timestamp,
) -> Result<(), TokenError> {
    let token = Token::parse(token)?;
    if token.authority != authority {
        return Err(TokenError::OtherAuthority);
    }
    let name = token.name();
    let failed = |source| TokenError::Api { name: name.clone(), source: Box::new(source) };
    let secret = secrets::api(client).get_opt(&name).await.map_err(failed)?.ok_or(TokenError::Unknown)?;
    Kept::of(&secret).ok_or(TokenError::Unknown)?.check(&token, node, now)?;
    if secrets::delete(client, &secret, true).await.map_err(failed)? { Ok(()) } else { Err(TokenError::Used) }
}

/// A token that no node has used: what is known of it without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unused {
    /// Name of its Secret object.
    pub name: String,
    pub node: String,
    /// RFC 3339.
    pub expires: String,
}

impl Unused {
    /// `None` for a Secret of another kind.
    fn of(secret: &Secret) -> Option<Self> {
        let kept = Kept::of(secret).filter(|_| secret.type_.as_deref() == Some(KIND))?;
        Some(Self { name: secret.metadata.name.clone()?, node: kept.node, expires: rfc3339(kept.expires) })
    }
}

/// Lists the tokens that are not used yet, by node. Expired ones stay until the next one is made.
///
/// # Errors
/// The API does not answer, or refuses.
pub async fn list(client: &Client) -> Result<Vec<Unused>, TokenError> {
    let failed = |source| TokenError::Api { name: "*".to_owned(), source: Box::new(source) };
    let list = secrets::list(client, KIND).await.map_err(failed)?;
    let mut tokens: Vec<Unused> = list.iter().filter_map(Unused::of).collect();
    tokens.sort_by(|a, b| (&a.node, &a.expires).cmp(&(&b.node, &b.expires)));
    Ok(tokens)
}

/// Deletes a token by the name of its Secret; other Secrets are left alone.
///
/// # Errors
/// [`TokenError::NoToken`] if no token has this name, else what the API says.
pub async fn delete(client: &Client, name: &str) -> Result<Unused, TokenError> {
    let failed = |source| TokenError::Api { name: name.to_owned(), source: Box::new(source) };
    let none = || TokenError::NoToken(name.to_owned());
    let secret = secrets::api(client).get_opt(name).await.map_err(failed)?.ok_or_else(none)?;
    let token = Unused::of(&secret).ok_or_else(none)?;
    if secrets::delete(client, &secret, false).await.map_err(failed)? { Ok(token) } else { Err(none()) }
}

/// Removes what can never be used again.
pub async fn clear_expired(client: &Client, now: Timestamp) -> Result<(), kube::Error> {
    secrets::clear(client, KIND, |secret| Kept::of(secret).is_none_or(|kept| now >= kept.expires)).await
}

#[cfg(test)]
mod tests;
