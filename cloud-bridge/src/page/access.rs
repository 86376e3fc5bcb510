//! Access to the page: with an operator's certificate, or with a token whose user may `list nodes`. The token comes
//! with each request, or once in exchange for a cookie.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use http::{HeaderMap, header};
use ring::rand::{SecureRandom, SystemRandom};

use super::sessions::{LIFE, Sessions};
use crate::accept::Source;
use crate::kubelet::auth::{Denied, Reviewer, bearer};
use crate::listen::is_operator;
use crate::pki::authority::hex;
use crate::pki::clock;
use crate::pki::identity::Holder;

/// Prefix of names of cookies that a browser accepts only over TLS and for this host (RFC 6265bis, 4.1.3.2).
const COOKIE: &str = "__Host-sampan";

/// A user who may see the page.
#[derive(Clone)]
pub(super) enum Who {
    Operator { user: String, expires: SystemTime },
    User { user: String, token: String, session: Option<String>, from: Source },
}

impl Who {
    /// The name under which the user's streams are counted.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Operator { user, .. } | Self::User { user, .. } => user,
        }
    }
}

pub(super) struct Access {
    reviewer: Reviewer,
    sessions: Mutex<Sessions>,
}

impl Access {
    pub(super) fn new(client: kube::Client) -> Self {
        Self { reviewer: Reviewer::new(client), sessions: Mutex::default() }
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn check(
        &self,
        holder: Option<&Holder>,
        headers: &HeaderMap,
        from: Source,
    ) -> Result<Who, Denied> {
        if let Some(holder) = holder.filter(|holder| is_operator(holder)) {
            let who = Who::Operator { user: holder.subject.user.clone(), expires: holder.expires };
            return if holder.expires > clock::now() { Ok(who) } else { Err(Denied::Unauthorized) };
        }
        if let Some(token) = bearer(headers) {
            let user = self.reviewer.check_list_nodes(token, from).await?.user;
            return Ok(Who::User { user, token: token.to_owned(), session: None, from });
        }
        let session = cookie(headers).ok_or(Denied::Unauthorized)?;
        let token = self.sessions().token(session, Instant::now()).ok_or(Denied::Unauthorized)?;
        let session = session.to_owned();
        match self.reviewer.check_list_nodes(&token, from).await {
            Ok(subject) => Ok(Who::User { user: subject.user, token, session: Some(session), from }),
            Err(denied) => {
                if matches!(denied, Denied::Unauthorized) {
                    self.sessions().close(&session);
                }
                Err(denied)
            }
        }
    }

    /// Whether a user may still see the page. An unreachable API does not revoke the access.
    pub(super) async fn holds(&self, who: &Who) -> bool {
        match who {
            Who::Operator { expires, .. } => *expires > clock::now(),
            Who::User { token, session, from, .. } => {
                let open = session.as_ref().is_none_or(|id| self.sessions().token(id, Instant::now()).is_some());
                let checked =
                    async { matches!(self.reviewer.check_list_nodes(token, *from).await, Ok(_) | Err(Denied::Api(_))) };
                open && checked.await
            }
        }
    }

    /// Returns the cookie for a token.
    pub(super) async fn log_in(&self, token: &str, from: Source) -> Result<String, Denied> {
        let token = token.trim();
        // A token must fit into a header; the API is not asked about other text.
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Denied::Unauthorized);
        }
        self.reviewer.check_list_nodes(token, from).await?;
        let mut id = [0; 32];
        SystemRandom::new().fill(&mut id).map_err(|_| Denied::Unauthorized)?;
        let id = hex(&id);
        self.sessions().open(id.clone(), token.to_owned(), Instant::now());
        Ok(set_cookie(&id, LIFE.as_secs()))
    }

    /// Ends the session of a browser; returns the cookie that deletes its own.
    pub(super) fn log_out(&self, headers: &HeaderMap) -> String {
        cookie(headers).inspect(|id| self.sessions().close(id));
        set_cookie("", 0)
    }
}

fn set_cookie(id: &str, seconds: u64) -> String {
    format!("{COOKIE}={id}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Strict")
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, id)| id)
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use http::HeaderValue;
    use kube::Client;
    use serde_json::json;

    use super::*;
    use crate::pki::identity::Subject;

    /// An API with the token `good`, whose user may list nodes, and `other`, whose user may not.
    pub(in crate::page) fn api() -> Client {
        let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
            let bytes = http_body_util::BodyExt::collect(request.into_body()).await.unwrap().to_bytes();
            let Ok(mut review) = serde_json::from_slice::<serde_json::Value>(&bytes) else {
                return Err(std::io::Error::other("a watch or a list, which is not here"));
            };
            let spec = &review["spec"];
            let status = match spec["token"].as_str() {
                Some("broken") => return Err(std::io::Error::other("the API is away")),
                Some(token) => {
                    let known = token == "good" || token == "other";
                    json!({"authenticated": known, "user": {"username": token}})
                }
                None => {
                    let asked = &spec["resourceAttributes"];
                    let lists = asked["verb"] == "list" && asked["resource"] == "nodes" && asked["name"] == "";
                    json!({"allowed": spec["user"] == "good" && lists})
                }
            };
            review.as_object_mut().unwrap().insert("status".to_owned(), status);
            let body = http_body_util::Full::new(bytes::Bytes::from(review.to_string()));
            Ok::<_, std::io::Error>(http::Response::new(body))
        });
        Client::new(service, "default")
    }

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    pub(in crate::page) fn from() -> Source {
        Source::of([192, 0, 2, 1].into())
    }

    #[tokio::test]
    async fn tokens_are_checked_by_the_api() {
        let access = Access::new(api());
        let with = |token: &str| headers(header::AUTHORIZATION, &format!("Bearer {token}"));
        assert!(matches!(access.check(None, &HeaderMap::new(), from()).await, Err(Denied::Unauthorized)));
        assert!(matches!(access.check(None, &with("wrong"), from()).await, Err(Denied::Unauthorized)));
        assert!(matches!(access.check(None, &with("other"), from()).await, Err(Denied::Forbidden { .. })));
        assert!(matches!(access.check(None, &with("broken"), from()).await, Err(Denied::Api(_))));
        assert_eq!(access.check(None, &with("good"), from()).await.unwrap().name(), "good");
    }

    #[tokio::test]
    async fn certificates_are_of_operators_and_have_an_end() {
        let access = Access::new(api());
        let none = HeaderMap::new();
        let holder = |group: &str, seconds: u64| Holder {
            subject: Subject { user: "robot".into(), groups: vec![group.into()] },
            issued: SystemTime::UNIX_EPOCH,
            expires: clock::now() + Duration::from_secs(seconds),
        };
        assert!(access.check(Some(&holder("sampan:operators", 60)), &none, from()).await.is_ok());
        assert!(access.check(Some(&holder("sampan:operators", 0)), &none, from()).await.is_err());
        let node = holder("system:nodes", 60);
        assert!(matches!(access.check(Some(&node), &none, from()).await, Err(Denied::Unauthorized)));
        let token = headers(header::AUTHORIZATION, "Bearer good");
        assert!(access.check(Some(&node), &token, from()).await.is_ok(), "whoever has a token has it");
        let brief = Who::Operator { user: "robot".into(), expires: clock::now() };
        assert!(!access.holds(&brief).await);
    }

    #[tokio::test]
    async fn a_cookie_stands_for_a_token_until_it_ends() {
        let access = Access::new(api());
        for bad in ["", "wrong", "two words", "\u{e4}"] {
            assert!(matches!(access.log_in(bad, from()).await, Err(Denied::Unauthorized)), "{bad:?}");
        }
        assert!(matches!(access.log_in("other", from()).await, Err(Denied::Forbidden { .. })));
        let set = access.log_in(" good\n", from()).await.unwrap();
        for part in ["__Host-sampan=", "; Path=/", "; Secure", "; HttpOnly", "; SameSite=Strict", "; Max-Age=28800"] {
            assert!(set.contains(part), "{part} in {set}");
        }
        assert!(!set.contains("good"), "the token stays here");
        let shown = headers(header::COOKIE, &format!("a=b; {}", set.split(';').next().unwrap()));
        let who = access.check(None, &shown, from()).await.unwrap();
        assert!(access.holds(&who).await);
        assert!(access.log_out(&shown).contains("Max-Age=0"));
        assert!(matches!(access.check(None, &shown, from()).await, Err(Denied::Unauthorized)));
        assert!(!access.holds(&who).await, "also whoever has begun to look");
        access.sessions().open("old".into(), "good".into(), Instant::now() - LIFE);
        let old = headers(header::COOKIE, "__Host-sampan=old");
        assert!(matches!(access.check(None, &old, from()).await, Err(Denied::Unauthorized)), "an expired session");
        access.sessions().open("lost".into(), "wrong".into(), Instant::now());
        let lost = headers(header::COOKIE, "__Host-sampan=lost");
        assert!(access.check(None, &lost, from()).await.is_err());
        assert_eq!(access.sessions().token("lost", Instant::now()), None, "its token is good no more");
    }
}
