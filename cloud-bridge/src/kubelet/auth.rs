//! Authentication and authorization for the kubelet API of a node, and for the targets of rules: like a kubelet with
//! webhook authentication and authorization.
//!
//! The client has a certificate that the TLS layer has verified, or a bearer token that the API knows. Then the API is
//! asked whether this user may access the node. A local client gets no extra trust.

use std::time::{Duration, Instant};

use http::HeaderMap;
use http::request::Parts;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::api::PostParams;
use kube::{Api, Client};
use ring::digest::{SHA256, digest};
use tokio::sync::Semaphore;

use super::cache::Cache;
use super::deed::{Deed, bearer, subresources, verb};
use super::places::Places;
use crate::accept::Source;
use crate::pki::clock;
use crate::pki::identity::{Holder, Subject};

/// Reason of a refusal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Denied {
    #[error("Unauthorized")]
    Unauthorized,
    #[error("Forbidden (user={user}, verb={verb}, resource={resource}, subresource(s)=[{}])", subresources.join(" "))]
    Forbidden { user: String, verb: &'static str, resource: &'static str, subresources: Vec<&'static str> },
    #[error("asking the API who may do this: {0}")]
    Api(#[from] kube::Error),
}

/// How long the API's answers are cached: as long as in a kubelet (K8s `authentication.webhook.cacheTTL` and
/// `authorization.webhook.cacheAuthorizedTTL`, `cacheUnauthorizedTTL`).
const KNOWN: Duration = Duration::from_secs(120);
const ALLOWED: Duration = Duration::from_secs(300);
const DENIED: Duration = Duration::from_secs(30);
/// How long a token counts as known, so that its holder does not queue with unknown clients.
const FAMILIAR: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of concurrent questions to the API: about known users, and about unknown tokens, for whose addresses
/// they take turns.
const QUESTIONS: (usize, usize) = (8, 8);

/// Resources of the questions; rules have their own API group.
const NODES: &str = "nodes";
const RULES: &str = "rules";
const RULES_GROUP: &str = "rules.kubeedge.io";
const CSI_DRIVERS: &str = "csidrivers";
const STORAGE_GROUP: &str = "storage.k8s.io";

/// Asks the API about users, and caches the answers.
pub(crate) struct Reviewer {
    client: Client,
    /// Users by the hash of the token; `None` for an unknown token.
    tokens: Cache<[u8; 32], Option<Subject>>,
    deeds: Cache<Deed, bool>,
    /// Hashes of tokens that were valid.
    familiar: Cache<[u8; 32], ()>,
    questions: Semaphore,
    strangers: Places<Source>,
}

impl Reviewer {
    pub(crate) fn new(client: Client) -> Self {
        let (questions, strangers) = (Semaphore::new(QUESTIONS.0), Places::new(QUESTIONS.1));
        let (tokens, deeds, familiar) = (Cache::default(), Cache::default(), Cache::default());
        Self { client, tokens, deeds, familiar, questions, strangers }
    }

    /// Succeeds if the user may do this with the node.
    pub(super) async fn check(
        &self,
        node: &str,
        certificate: Option<&Holder>,
        parts: &Parts,
        from: Source,
    ) -> Result<(), Denied> {
        let subject = match certificate {
            // A connection may outlive its certificate.
            Some(holder) if holder.expires <= clock::now() => return Err(Denied::Unauthorized),
            Some(holder) => holder.subject.clone(),
            None => self.of_token(bearer(&parts.headers).ok_or(Denied::Unauthorized)?, from).await?,
        };
        let (verb, subresources) = (verb(&parts.method), subresources(parts.uri.path()));
        for subresource in &subresources {
            let Subject { user, groups } = subject.clone();
            let (namespace, name) = (String::new(), node.to_owned());
            let (group, resource) = ("", NODES);
            if self.allowed(Deed { group, resource, namespace, name, user, groups, verb, subresource }).await? {
                return Ok(());
            }
        }
        Err(Denied::Forbidden { user: subject.user, verb, resource: NODES, subresources })
    }

    /// Identifies the user of a request's token.
    pub(crate) async fn bearer(&self, headers: &HeaderMap, from: Source) -> Result<Subject, Denied> {
        self.of_token(bearer(headers).ok_or(Denied::Unauthorized)?, from).await
    }

    /// Succeeds if the user may `create` `rules/proxy` of this name.
    pub(crate) async fn check_rule(&self, subject: Subject, namespace: &str, rule: &str) -> Result<(), Denied> {
        let (group, resource, verb, subresource) = (RULES_GROUP, RULES, "create", "proxy");
        let Subject { user, groups } = subject;
        let (namespace, name) = (namespace.to_owned(), rule.to_owned());
        let deed = Deed { group, resource, namespace, name, user: user.clone(), groups, verb, subresource };
        match self.allowed(deed).await? {
            true => Ok(()),
            false => Err(Denied::Forbidden { user, verb, resource, subresources: vec![subresource] }),
        }
    }

    /// Succeeds if the user may `proxy` both `nodes/csi-controller` of this node and `csidrivers/controller` of this driver:
    /// rights that are for nothing else.
    pub(crate) async fn check_controller(&self, subject: Subject, node: &str, driver: &str) -> Result<(), Denied> {
        let verb = "proxy";
        for (group, resource, subresource, name) in
            [("", NODES, "csi-controller", node), (STORAGE_GROUP, CSI_DRIVERS, "controller", driver)]
        {
            let Subject { user, groups } = subject.clone();
            let (namespace, name) = (String::new(), name.to_owned());
            if !self.allowed(Deed { group, resource, namespace, name, user, groups, verb, subresource }).await? {
                return Err(Denied::Forbidden { user: subject.user, verb, resource, subresources: vec![subresource] });
            }
        }
        Ok(())
    }

    /// Succeeds if the user of the token may `list` `nodes`: all of them.
    pub(crate) async fn check_list_nodes(&self, token: &str, from: Source) -> Result<Subject, Denied> {
        let subject = self.of_token(token, from).await?;
        self.check_list(subject.clone(), "", NODES).await?;
        Ok(subject)
    }

    /// Succeeds if the user may `list` all objects of the resource.
    pub(crate) async fn check_list(
        &self,
        subject: Subject,
        group: &'static str,
        resource: &'static str,
    ) -> Result<(), Denied> {
        let (verb, subresource, namespace, name) = ("list", "", String::new(), String::new());
        let Subject { user, groups } = subject;
        let deed = Deed { group, resource, namespace, name, user: user.clone(), groups, verb, subresource };
        match self.allowed(deed).await? {
            true => Ok(()),
            false => Err(Denied::Forbidden { user, verb, resource, subresources: Vec::new() }),
        }
    }

    async fn allowed(&self, deed: Deed) -> Result<bool, Denied> {
        if let Some(allowed) = self.deeds.get(&deed, Instant::now()) {
            return Ok(allowed);
        }
        // The semaphore is never closed.
        let _turn = self.questions.acquire().await;
        let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
        let reviewed = reviews.create(&PostParams::default(), &deed.review()).await?;
        let allowed = reviewed.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        self.deeds.put(deed, allowed, Instant::now(), if allowed { ALLOWED } else { DENIED });
        Ok(allowed)
    }

    /// Identifies the user of a token.
    pub(crate) async fn of_token(&self, token: &str, from: Source) -> Result<Subject, Denied> {
        let hash = hash(token);
        if let Some(known) = self.tokens.get(&hash, Instant::now()) {
            return known.ok_or(Denied::Unauthorized);
        }
        let is_familiar = self.familiar.get(&hash, Instant::now()).is_some();
        // The semaphore is never closed.
        let _turn = if is_familiar { Some(self.questions.acquire().await) } else { None };
        let _place = if is_familiar { None } else { Some(self.strangers.take(from).await) };
        let subject = of_review(&self.client, token).await?;
        let life = if subject.is_some() { KNOWN } else { DENIED };
        if subject.is_some() {
            self.familiar.put(hash, (), Instant::now(), FAMILIAR);
        }
        self.tokens.put(hash, subject.clone(), Instant::now(), life);
        subject.ok_or(Denied::Unauthorized)
    }
}

fn hash(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}

async fn of_review(client: &Client, token: &str) -> Result<Option<Subject>, Denied> {
    let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let reviewed = Api::<TokenReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
    let status = reviewed.status.filter(|status| status.authenticated == Some(true));
    let user = status.and_then(|status| status.user);
    Ok(user.and_then(|user| {
        let name = user.username.filter(|name| !name.is_empty())?;
        Some(Subject { user: name, groups: user.groups.unwrap_or_default() })
    }))
}

#[cfg(test)]
mod tests;
