//! Raw requests to the API: JSON values in, and only the needed fields of the answer are parsed.

mod pages;

use std::collections::BTreeMap;

use http::header::USER_AGENT;
use http::{HeaderName, HeaderValue, Method, Request};
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::counters;
use crate::pki::identity::NODE_GROUP;

pub(super) const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
pub(super) const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");

/// The `User-Agent` of requests in the name of a node.
pub const KUBELET: &str = "kubelet";

/// Media types of the patch kinds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patch {
    /// RFC 7386.
    Merge,
    /// Kubernetes' strategic merge: lists merge by key.
    Strategic,
}

impl Patch {
    fn media_type(self) -> &'static str {
        match self {
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
        }
    }
}

/// The parsed part of an answer that is not needed otherwise.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Written {
    #[serde(default)]
    pub metadata: WrittenMeta,
}

/// Part of [`Written`].
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WrittenMeta {
    #[serde(default)]
    pub uid: String,
    #[serde(default)]
    pub resource_version: String,
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub owner_references: Vec<Value>,
}

/// Sends requests as one identity.
#[derive(Clone)]
pub(crate) struct Requests {
    client: Client,
    /// The user to act as, who must be a node.
    node: Option<HeaderValue>,
}

impl Requests {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, node: None }
    }

    /// Sends requests as the node with this user name. Cheaper than a separate client, which needs a task and a queue;
    /// a bridge has one of these for every node.
    pub(super) fn impersonating(client: Client, user: HeaderValue) -> Self {
        Self { client, node: Some(user) }
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> kube::Result<T> {
        self.send(Method::GET, path, "application/json", String::new()).await
    }

    pub(super) async fn create(&self, path: &str, body: &Value) -> kube::Result<Written> {
        self.send(Method::POST, path, "application/json", body.to_string()).await
    }

    /// Same as [`create`](Self::create), but returns the answer.
    pub(super) async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> kube::Result<T> {
        self.send(Method::POST, path, "application/json", body.to_string()).await
    }

    pub(super) async fn patch(&self, path: &str, kind: Patch, body: &Value) -> kube::Result<Written> {
        self.send(Method::PATCH, path, kind.media_type(), body.to_string()).await
    }

    /// Same as [`patch`](Self::patch), for a patch that is JSON text already.
    pub(super) async fn patch_text(&self, path: &str, kind: Patch, body: String) -> kube::Result<Written> {
        self.send(Method::PATCH, path, kind.media_type(), body).await
    }

    /// Same as [`patch`](Self::patch), but returns the answer.
    pub(super) async fn patch_for<T: DeserializeOwned>(
        &self,
        path: &str,
        kind: Patch,
        body: &Value,
    ) -> kube::Result<T> {
        self.send(Method::PATCH, path, kind.media_type(), body.to_string()).await
    }

    /// Deletes without a grace period, if the object still has this uid.
    pub(super) async fn delete_now(&self, path: &str, uid: &str) -> kube::Result<Written> {
        let options = serde_json::json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": uid},
        });
        self.send(Method::DELETE, path, "application/json", options.to_string()).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        media_type: &str,
        body: String,
    ) -> kube::Result<T> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::CONTENT_TYPE, media_type)
            .body(body.into_bytes())
            .map_err(kube::Error::HttpError)?;
        if let Some(user) = &self.node {
            request.headers_mut().insert(IMPERSONATE_USER, user.clone());
            request.headers_mut().insert(IMPERSONATE_GROUP, HeaderValue::from_static(NODE_GROUP));
            request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(KUBELET));
        }
        counters::API_REQUESTS.one();
        let answer = self.client.request(request).await;
        if let Err(error) = &answer {
            let counter = match code(error) {
                Some(400..500) => &counters::API_CLIENT_ERRORS,
                Some(_) => &counters::API_SERVER_ERRORS,
                None => &counters::API_UNREACHED,
            };
            counter.one();
        }
        answer
    }
}

/// The status of an API error, if it is one.
pub(super) fn code(error: &kube::Error) -> Option<u16> {
    if let kube::Error::Api(status) = error { Some(status.code) } else { None }
}

/// Whether the API has understood a request and refused it, or the request could not be made: another attempt would fail
/// as well. It is not a refusal if credentials are being renewed, or the API is busy.
pub(super) fn is_refusal(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => (400..500).contains(&status.code) && !matches!(status.code, 401 | 408 | 429),
        kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => true,
        _ => false,
    }
}

/// An error in the API's own words, if it has answered.
pub(super) fn words(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error { status.message.clone() } else { error.to_string() }
}

/// Whether a text from a node is safe in a request's path: names of Kubernetes objects need no escaping, and nothing
/// else is accepted.
pub(super) fn is_path_segment(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 253
        && text != "."
        && text != ".."
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':'))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn busy_api_and_expired_credentials_are_no_refusal() {
        let answered = |code| is_refusal(&kube::Error::Api(Box::new(Status::failure("m", "r").with_code(code))));
        for code in [400, 403, 404, 409, 413, 422] {
            assert!(answered(code), "{code}");
        }
        for code in [401, 408, 429, 500, 502, 503, 504] {
            assert!(!answered(code), "{code}");
        }
        let broken = kube::Error::SerdeError(serde_json::from_str::<u8>("x").unwrap_err());
        assert!(!is_refusal(&broken), "a malformed answer proves nothing");
        assert!(is_refusal(&kube::Error::HttpError(http::Uri::try_from("a b").map(drop).unwrap_err().into())));
    }

    #[test]
    fn names_that_would_change_a_path_are_refused() {
        for good in ["web-0", "kube-root-ca.crt", "web.18a.f"] {
            assert!(is_path_segment(good), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a?b", "a b", "a%2fb", "ä", "a\nb"] {
            assert!(!is_path_segment(bad), "{bad}");
        }
    }
}
