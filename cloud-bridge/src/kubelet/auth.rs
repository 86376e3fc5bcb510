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
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::SystemTime;

    use futures::FutureExt;
    use http::header::AUTHORIZATION;
    use serde_json::json;

    use super::*;

    /// An API that knows the token `good`, whose user may do everything to node `a`; and the number of questions.
    fn api() -> (Client, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            async move {
                let bytes = http_body_util::BodyExt::collect(request.into_body()).await.unwrap().to_bytes();
                let mut review: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
                let status = match review["spec"]["token"].as_str() {
                    Some(token) => json!({"authenticated": token == "good", "user": {"username": "robot"}}),
                    None => json!({"allowed": review["spec"]["resourceAttributes"]["name"] == "a"}),
                };
                review.as_object_mut().unwrap().insert("status".to_owned(), status);
                let body = http_body_util::Full::new(bytes::Bytes::from(review.to_string()));
                Ok::<_, std::convert::Infallible>(http::Response::new(body))
            }
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test]
    async fn what_the_api_said_is_remembered_for_a_while() {
        let (client, asked) = api();
        let (reviewer, asked) = (Reviewer::new(client), || asked.load(Ordering::Relaxed));
        let get = |token: &str| {
            let request = http::Request::get("/stats/summary").header(AUTHORIZATION, format!("Bearer {token}"));
            request.body(()).unwrap().into_parts().0
        };
        for _ in 0..3 {
            reviewer.check("a", None, &get("good"), from(1)).await.unwrap();
            assert!(matches!(reviewer.check("a", None, &get("bad"), from(1)).await, Err(Denied::Unauthorized)));
            assert!(matches!(reviewer.check("b", None, &get("good"), from(1)).await, Err(Denied::Forbidden { .. })));
        }
        assert_eq!(asked(), 4, "two tokens, two nodes");
        let ended = Holder {
            subject: Subject { user: "robot".to_owned(), groups: Vec::new() },
            issued: SystemTime::UNIX_EPOCH,
            expires: SystemTime::now() - Duration::from_secs(1),
        };
        assert!(matches!(reviewer.check("a", Some(&ended), &get("good"), from(1)).await, Err(Denied::Unauthorized)));
        let good = Holder { expires: SystemTime::now() + Duration::from_secs(60), ..ended };
        reviewer.check("a", Some(&good), &get("bad"), from(1)).await.unwrap();
        assert_eq!(asked(), 4, "of the same user, however he came");
    }

    #[tokio::test]
    async fn strangers_keep_no_familiar_token_waiting() {
        let (client, _) = api();
        let reviewer = Reviewer::new(client);
        assert!(reviewer.of_token("good", from(1)).await.is_ok());
        reviewer.tokens.put(hash("good"), None, Instant::now(), Duration::ZERO);
        let strangers = futures::future::join_all((0..8).map(|_| reviewer.strangers.take(from(2)))).await;
        let mut guesses: Vec<_> = (0..20).map(|at| Box::pin(guess(&reviewer, at, from(2)))).collect();
        assert!(guesses.iter_mut().all(|guess| guess.now_or_never().is_none()));
        let wait = Duration::from_secs(10);
        assert!(tokio::time::timeout(wait, reviewer.of_token("good", from(2))).await.unwrap().is_ok());
        let mut newcomer = Box::pin(reviewer.of_token("new", from(1)));
        assert!(newcomer.as_mut().now_or_never().is_none());
        drop(strangers);
        // The pending guesses keep their places, because they are not polled.
        let answered = tokio::time::timeout(wait, newcomer).await.unwrap();
        assert!(matches!(answered, Err(Denied::Unauthorized)), "all but one of another address wait longer");
        assert!(futures::future::join_all(guesses).await.iter().all(|good| !good));
    }

    async fn guess(reviewer: &Reviewer, at: usize, from: Source) -> bool {
        reviewer.of_token(&format!("guess {at}"), from).await.is_ok()
    }

    fn from(last: u8) -> Source {
        Source::of([192, 0, 2, last].into())
    }
}
