//! The user of a token, from the server's configuration and the storage.

use http::HeaderMap;

use super::Inner;
use crate::auth::accounts::{self, Proven};
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::user::UserInfo;
use kubelet_api::websocket;

impl Inner {
    /// The user of a bearer token, in its header or among the subprotocols of a WebSocket.
    ///
    /// # Errors
    /// 401 without a token, or with an unknown one.
    pub(crate) fn bearer(&self, headers: &HeaderMap) -> ApiResult<UserInfo> {
        let value = headers.get(http::header::AUTHORIZATION).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let token = match value.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim().to_owned(),
            Some(_) => return Err(ApiError::unauthorized()),
            None => websocket::bearer(headers).ok_or_else(ApiError::unauthorized)?,
        };
        self.token_user(&token).ok_or_else(ApiError::unauthorized)
    }

    /// The user of a token. Compares whole tokens in constant time.
    pub(crate) fn token_user(&self, token: &str) -> Option<UserInfo> {
        let equal = |known: &str| {
            let difference = known.bytes().zip(token.bytes()).fold(0, |acc, (a, b)| acc | (a ^ b));
            known.len() == token.len() && difference == 0
        };
        let fixed = self.config.tokens.iter().find(|(known, _)| !known.is_empty() && equal(known));
        fixed.map(|(_, user)| user.clone()).or_else(|| self.account_token(token, &[]).map(|proven| proven.user))
    }

    /// Identity of a service account's token for these audiences; none means this API's own.
    pub(crate) fn account_token(&self, token: &str, audiences: &[String]) -> Option<Proven> {
        accounts::review(self.config.accounts.as_ref()?, || self.store(), token, audiences)
    }
}
