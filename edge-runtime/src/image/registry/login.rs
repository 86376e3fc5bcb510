//! Meeting a registry's challenge: basic logins, and tokens from a token server (distribution project, "Token
//! Authentication" and its OAuth2 form).

use serde::Deserialize;
use ureq::http::StatusCode;

use super::Repository;
use crate::image::ImageError;
use crate::image::auth::Credential;
use crate::image::challenge::Challenge;
use crate::sys::from_json::from_json;

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Repository<'_> {
    /// The `Authorization` header that meets the challenge, or none when this credential does not.
    pub(super) fn log_in(
        &self,
        challenge: &Challenge,
        credential: Option<&Credential>,
    ) -> Result<Option<String>, ImageError> {
        let Challenge::Bearer { realm, service, scope } = challenge else {
            return Ok(credential.map(Credential::basic));
        };
        if self.endpoint.base.starts_with("https:") && !realm.starts_with("https:") {
            return Err(ImageError::Refused {
                image: self.image(),
                registry: self.endpoint.base.clone(),
                why: format!("it wants the login sent in the clear to {realm}"),
            });
        }
        let scope = scope.clone().unwrap_or_else(|| format!("repository:{}:pull", self.reference.repository));
        let refresh = credential.and_then(|c| c.identity_token.as_deref());
        let service = service.as_deref();
        let sent = match refresh {
            Some(token) => self.agent.post(realm).send_form(
                [
                    ("grant_type", "refresh_token"),
                    ("client_id", "edge-runtime"),
                    ("refresh_token", token),
                    ("scope", &scope),
                ]
                .into_iter()
                .chain(service.map(|service| ("service", service))),
            ),
            None => {
                let mut request = self.agent.get(realm).query("scope", &scope);
                if let Some(service) = service {
                    request = request.query("service", service);
                }
                if let Some(credential) = credential {
                    request = request.header("authorization", credential.basic());
                }
                request.call()
            }
        };
        let response = sent.map_err(|error| self.unreachable(format!("its token server {realm}: {error}")))?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST => return Ok(None),
            status => return Err(self.unreachable(format!("its token server {realm} answered with {status}"))),
        }
        let fetched = self.document(response, "token", None)?;
        let token: Option<Token> = from_json(&fetched.bytes).ok();
        let token = token.and_then(|t| t.token.or(t.access_token)).filter(|t| !t.is_empty());
        match token {
            Some(token) => Ok(Some(format!("Bearer {token}"))),
            None => Err(self.unreachable(format!("its token server {realm} gave no token"))),
        }
    }
}
