//! Who may use the kubelet API of a node: the rules of a kubelet with webhook authentication and authorization.
//!
//! A client certificate that the TLS layer verified, or a bearer token that the API knows; then the API is asked
//! whether this user may use the node. Nobody is trusted for being local.

use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, Method};
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
    #[error("Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{}])", subresources.join(" "))]
    Forbidden { user: String, verb: &'static str, subresources: Vec<&'static str> },
    #[error("asking the API who may do this: {0}")]
    Api(#[from] kube::Error),
}

/// Lets through who may do this to the node.
pub(super) async fn check(
    client: &Client,
    node: &str,
    certificate: Option<&Subject>,
    parts: &Parts,
) -> Result<(), Denied> {
    let subject = match certificate {
        Some(subject) => subject.clone(),
        None => of_token(client, bearer(&parts.headers).ok_or(Denied::Unauthorized)?).await?,
    };
    let (verb, subresources) = (verb(&parts.method), subresources(parts.uri.path()));
    for subresource in &subresources {
        let review = review(node, subject.clone(), verb, subresource);
        let reviewed = Api::<SubjectAccessReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
        if reviewed.status.is_some_and(|status| status.allowed && status.denied != Some(true)) {
            return Ok(());
        }
    }
    Err(Denied::Forbidden { user: subject.user, verb, subresources })
}

/// K8s pkg/kubelet/server/auth.go GetRequestAttributes.
fn verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// What of `nodes` a path is, finest first; to be allowed one of them is enough. Container logs are `proxy` (`log`
/// is the node's own log), and so is everything that is not named here.
fn subresources(path: &str) -> Vec<&'static str> {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    match first {
        "pods" | "runningpods" => vec!["pods", "proxy"],
        "healthz" => vec!["healthz", "proxy"],
        "configz" => vec!["configz", "proxy"],
        "stats" => vec!["stats"],
        "metrics" => vec!["metrics"],
        "logs" => vec!["log"],
        "checkpoint" => vec!["checkpoint"],
        "statusz" => vec!["statusz"],
        "flagz" => vec!["configz"],
        _ => vec!["proxy"],
    }
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

fn review(node: &str, subject: Subject, verb: &str, subresource: &str) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(subject.user),
            groups: Some(subject.groups),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                version: Some("v1".to_owned()),
                resource: Some("nodes".to_owned()),
                subresource: Some(subresource.to_owned()),
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
    fn paths_are_the_subresources_of_a_kubelet() {
        for (path, expected) in [
            ("/exec/a/b/c", &["proxy"][..]),
            ("/containerLogs/a/b/c", &["proxy"]),
            ("/stats/summary", &["stats"]),
            ("/metrics/resource", &["metrics"]),
            ("/metricsx", &["proxy"]),
            ("/logs/syslog", &["log"]),
            ("/pods", &["pods", "proxy"]),
            ("/healthz/ping", &["healthz", "proxy"]),
            ("/", &["proxy"]),
        ] {
            assert_eq!(subresources(path), expected, "{path}");
        }
        assert_eq!((verb(&Method::POST), verb(&Method::GET), verb(&Method::HEAD)), ("create", "get", ""));
    }

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
