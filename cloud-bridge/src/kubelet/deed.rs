//! What a request does with which objects of the API, and by whose token. Pure.

use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};

/// A user's action on objects of the API.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Deed {
    /// API group; empty for nodes.
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    /// Empty for nodes.
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) user: String,
    pub(super) groups: Vec<String>,
    pub(super) verb: &'static str,
    pub(super) subresource: &'static str,
}

impl Deed {
    /// The question whether the API allows it.
    pub(super) fn review(&self) -> SubjectAccessReview {
        SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(self.user.clone()),
                groups: Some(self.groups.clone()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(self.verb.to_owned()),
                    version: Some("v1".to_owned()),
                    group: (!self.group.is_empty()).then(|| self.group.to_owned()),
                    resource: Some(self.resource.to_owned()),
                    subresource: Some(self.subresource.to_owned()),
                    namespace: (!self.namespace.is_empty()).then(|| self.namespace.clone()),
                    name: Some(self.name.clone()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        }
    }
}

/// K8s pkg/kubelet/server/auth.go GetRequestAttributes.
pub(super) fn verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// Subresources of `nodes` to which a path belongs, the finest first; one that is allowed is enough. Container logs are
/// `proxy` (`log` is the node's own log), and so is everything else.
pub(super) fn subresources(path: &str) -> Vec<&'static str> {
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

/// The bearer token of a request.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
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
