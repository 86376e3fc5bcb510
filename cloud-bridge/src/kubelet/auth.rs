//! Who may use the kubelet API of a node: the rules of a kubelet with webhook authentication and authorization.
//!
//! A client certificate that the TLS layer verified, or a bearer token that the API knows; then the API is asked
//! whether this user may use the node. Nobody is trusted for being local.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

use crate::pki::identity::Subject;

/// Why somebody is turned away.
#[derive(Debug, thiserror::Error)]
pub(super) enum Denied {
    #[error("Unauthorized")]
    Unauthorized,
    #[error("Forbidden (user={user}, verb=get, resource=nodes, subresource=proxy)")]
    Forbidden { user: String },
    #[error("asking the API who may do this: {0}")]
    Api(#[from] kube::Error),
}

/// Lets through who may read from this node.
pub(super) async fn check(
    client: &Client,
    node: &str,
    certificate: Option<&Subject>,
    headers: &HeaderMap,
) -> Result<(), Denied> {
    let subject = match certificate {
        Some(subject) => subject.clone(),
        None => of_token(client, bearer(headers).ok_or(Denied::Unauthorized)?).await?,
    };
    let user = subject.user.clone();
    let allowed = Api::<SubjectAccessReview>::all(client.clone())
        .create(&PostParams::default(), &review(node, subject))
        .await?
        .status
        .is_some_and(|status| status.allowed && status.denied != Some(true));
    if allowed { Ok(()) } else { Err(Denied::Forbidden { user }) }
}

async fn of_token(client: &Client, token: &str) -> Result<Subject, Denied> {
    let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let reviewed = Api::<TokenReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
    let status = reviewed.status.filter(|status| status.authenticated == Some(true)).ok_or(Denied::Unauthorized)?;
    let user = status.user.ok_or(Denied::Unauthorized)?;
    let name = user.username.filter(|name| !name.is_empty()).ok_or(Denied::Unauthorized)?;
    Ok(Subject { user: name, groups: user.groups.unwrap_or_default() })
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

/// Container logs are `nodes/proxy` to a kubelet (`nodes/log` is the node's own log).
fn review(node: &str, subject: Subject) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(subject.user),
            groups: Some(subject.groups),
            resource_attributes: Some(ResourceAttributes {
                verb: Some("get".to_owned()),
                version: Some("v1".to_owned()),
                resource: Some("nodes".to_owned()),
                subresource: Some("proxy".to_owned()),
                name: Some(node.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_bearer_tokens_are_tokens() {
        let headers = |value: &'static str| HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]);
        assert_eq!(bearer(&headers("Bearer abc")), Some("abc"));
        assert_eq!(bearer(&headers("bearer abc")), Some("abc"));
        for bad in ["Basic abc", "Bearer ", "abc"] {
            assert_eq!(bearer(&headers(bad)), None, "{bad}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
