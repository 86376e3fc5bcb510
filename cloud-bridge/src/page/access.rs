//! Access to the page: with an operator's certificate, or with a token whose user may `list nodes`. The token comes
//! with each request, or once in exchange for a cookie.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use http::{HeaderMap, header};
use ring::rand::{SecureRandom, SystemRandom};

use super::sessions::{LIFE, Sessions};
use crate::accept::Source;
use crate::kubelet::auth::{Denied, Reviewer};
use crate::kubelet::deed::bearer;
use crate::listen::is_operator;
use crate::pki::clock;
use crate::pki::encoding::hex;
use crate::pki::identity::{Holder, Subject};

/// Prefix of names of cookies that a browser accepts only over TLS and for this host (RFC 6265bis, 4.1.3.2).
const COOKIE: &str = "__Host-sampan";

/// A user who may see the page.
#[derive(Clone)]
pub(super) enum Who {
    Operator { subject: Subject, expires: SystemTime },
    User { user: String, token: String, session: Option<String>, from: Source },
}

impl Who {
    /// The name under which the user's streams are counted.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Operator { subject, .. } => &subject.user,
            Self::User { user, .. } => user,
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
            let who = Who::Operator { subject: holder.subject.clone(), expires: holder.expires };
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

    /// Succeeds if the user may list all objects of the resource, which the right to list nodes does not include.
    pub(super) async fn may_list(&self, who: &Who, group: &'static str, resource: &'static str) -> Result<(), Denied> {
        let subject = match who {
            Who::Operator { subject, .. } => subject.clone(),
            Who::User { token, from, .. } => self.reviewer.of_token(token, *from).await?,
        };
        self.reviewer.check_list(subject, group, resource).await
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
pub(super) mod tests;
