//! Who may do what: bearer tokens, impersonation, and the decision on each request. Everyone must be
//! identified; there is no anonymous access.

pub(crate) mod accounts;
pub(crate) mod request_info;

pub(crate) mod node;

use edge_protocol::json::SetField;
use http::HeaderMap;

use crate::resource::status::{ApiError, ApiResult};
use apimachinery::user::{AUTHENTICATED, MASTERS, UserInfo};
use node::Related;
use request_info::{ResourcePath, Target};

/// What a request wants to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub verb: String,
    pub path: ResourcePath,
    /// `spec.nodeName=NAME` of the field selector, for the node authorizer.
    pub selected_node: Option<String>,
    /// Set for what is no resource.
    pub url: Option<String>,
}

impl Attributes {
    /// The attributes of a request.
    pub(crate) fn new(method: &str, target: &Target, watch: bool, field_selector: &str) -> Self {
        match target {
            Target::Path(url) => Self {
                verb: method.to_lowercase(),
                path: ResourcePath::default(),
                selected_node: None,
                url: Some(url.clone()),
            },
            Target::Resource(path) => {
                let named = !path.name.is_empty();
                let verb = match (method, named) {
                    ("GET" | "HEAD", _) if watch && !named => "watch",
                    ("GET" | "HEAD", true) => "get",
                    ("GET" | "HEAD", false) => "list",
                    ("POST", _) => "create",
                    ("PUT", _) => "update",
                    ("PATCH", _) => "patch",
                    ("DELETE", true) => "delete",
                    ("DELETE", false) => "deletecollection",
                    _ => "",
                };
                let mut path = path.clone();
                let term = |name: &str| {
                    let found = field_selector.split(',').find_map(|t| t.strip_prefix(name)?.strip_prefix('='));
                    found.map(|value| value.trim_start_matches('=').to_owned())
                };
                // A list or watch pinned to one name is a request for that name.
                if matches!(verb, "list" | "watch") && path.name.is_empty() {
                    path.name = term("metadata.name").unwrap_or_default();
                }
                Self { verb: verb.into(), path, selected_node: term("spec.nodeName"), url: None }
            }
        }
    }

    fn denied(&self, user: &UserInfo, reason: &str) -> ApiError {
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        if let Some(url) = &self.url {
            return ApiError::forbidden_text(format!(
                "forbidden: User {:?} cannot {} path {url:?}{reason}",
                user.name, self.verb
            ));
        }
        let path = &self.path;
        let resource = match path.subresource.as_str() {
            "" => path.resource.clone(),
            sub => format!("{}/{sub}", path.resource),
        };
        let scope = if path.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {:?}", path.namespace)
        };
        let qualified =
            if path.group.is_empty() { path.resource.clone() } else { format!("{}.{}", path.resource, path.group) };
        let subject = if path.name.is_empty() { qualified } else { format!("{qualified} {:?}", path.name) };
        let mut error = ApiError::forbidden_text(format!(
            "{subject} is forbidden: User {:?} cannot {} resource {resource:?} in API group {:?} {scope}{reason}",
            user.name, self.verb, path.group
        ));
        error.details = serde_json::json!({ "kind": path.resource });
        if !path.name.is_empty() {
            error.details.set("name", path.name.as_str().into());
        }
        if !path.group.is_empty() {
            error.details.set("group", path.group.as_str().into());
        }
        error
    }
}

/// Follows the impersonation headers.
///
/// # Errors
/// 403 when the user may not act as another, 400 for groups without a user.
pub(crate) fn impersonate(user: &UserInfo, headers: &HeaderMap) -> ApiResult<Option<UserInfo>> {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let groups: Vec<String> =
        headers.get_all("impersonate-group").iter().filter_map(|v| v.to_str().ok()).map(str::to_owned).collect();
    let Some(name) = text("impersonate-user").filter(|n| !n.is_empty()) else {
        if groups.is_empty() && text("impersonate-uid").is_none() {
            return Ok(None);
        }
        return Err(ApiError::bad_request("requested groups or uid without impersonating a user name"));
    };
    if !user.in_group(MASTERS) {
        let attributes = Attributes {
            verb: "impersonate".into(),
            path: ResourcePath { resource: "users".into(), name, ..ResourcePath::default() },
            selected_node: None,
            url: None,
        };
        return Err(attributes.denied(user, ""));
    }
    let mut acting = UserInfo { name, uid: text("impersonate-uid").unwrap_or_default(), groups };
    if !acting.groups.iter().any(|g| g == AUTHENTICATED || g == "system:unauthenticated") {
        acting.groups.push(AUTHENTICATED.into());
    }
    Ok(Some(acting))
}

/// Paths that everyone identified may read.
fn discovery(url: &str) -> bool {
    ["/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz"]
        .iter()
        .any(|prefix| url == *prefix || url.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/')))
}

/// Reviews of oneself that everyone identified may create.
fn self_review(path: &ResourcePath) -> bool {
    match path.group.as_str() {
        "authorization.k8s.io" => {
            matches!(path.resource.as_str(), "selfsubjectaccessreviews" | "selfsubjectrulesreviews")
        }
        "authentication.k8s.io" => path.resource == "selfsubjectreviews",
        _ => false,
    }
}

/// Decides; `Err` carries the reason, which may be empty.
pub(crate) fn decide(related: &Related, user: &UserInfo, attributes: &Attributes) -> Result<(), String> {
    if user.in_group(MASTERS) {
        return Ok(());
    }
    let known = user.in_group(AUTHENTICATED);
    match &attributes.url {
        Some(url) if known && attributes.verb == "get" && discovery(url) => return Ok(()),
        Some(_) => return Err(String::new()),
        None if known && attributes.verb == "create" && self_review(&attributes.path) => return Ok(()),
        None => {}
    }
    match user.node_name() {
        Some(node) => node::authorize(&related.relations(), node, attributes),
        None => Err(String::new()),
    }
}

/// `decide`, as a 403.
pub(crate) fn authorize(related: &Related, user: &UserInfo, attributes: &Attributes) -> ApiResult<()> {
    decide(related, user, attributes).map_err(|reason| attributes.denied(user, &reason))
}

#[cfg(test)]
mod tests {
    use super::request_info::target;
    use super::*;

    #[test]
    fn verbs_follow_the_request() {
        let of =
            |method: &str, path: &str, watch| Attributes::new(method, &target(path), watch, "spec.nodeName=n").verb;
        assert_eq!(of("GET", "/api/v1/pods", false), "list");
        assert_eq!(of("GET", "/api/v1/pods", true), "watch");
        assert_eq!(of("GET", "/api/v1/namespaces/a/pods/x", false), "get");
        assert_eq!(of("DELETE", "/api/v1/namespaces/a/pods", false), "deletecollection");
        let pinned = Attributes::new("GET", &target("/api/v1/namespaces/a/secrets"), true, "metadata.name=s");
        assert_eq!((pinned.verb.as_str(), pinned.path.name.as_str()), ("watch", "s"));
    }

    #[test]
    fn a_refusal_reads_as_kubectl_users_know_it() {
        let attributes = Attributes::new("GET", &target("/api/v1/namespaces/a/pods/x"), false, "");
        let error = attributes.denied(&UserInfo::new("eve", ["x"]), "");
        assert_eq!(
            error.message,
            "pods \"x\" is forbidden: User \"eve\" cannot get resource \"pods\" in API group \"\" in the namespace \"a\""
        );
    }
}
