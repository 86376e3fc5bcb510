//! Attributes of a request for authorizers, and the texts of refusals.

use sampan_json::SetField;

use super::request_info::{ResourcePath, Target};
use crate::resource::status::ApiError;
use apimachinery::selector::FieldSelector;
use apimachinery::user::UserInfo;

/// Attributes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub verb: String,
    pub path: ResourcePath,
    /// `spec.nodeName=NAME` of the field selector, for the node authorizer.
    pub selected_node: Option<String>,
    /// Set for a request outside the resources.
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
                // As the storage reads it. What cannot be read is refused there.
                let selector = FieldSelector::parse(field_selector).unwrap_or_default();
                let term = |name: &str| selector.wanted(name).map(str::to_owned);
                // A namespace is in itself (K8s apiserver endpoints/request/requestinfo.go).
                if path.group.is_empty() && path.resource == "namespaces" && !path.name.is_empty() {
                    path.namespace.clone_from(&path.name);
                }
                // A list or watch pinned to one name is a request for that name.
                if matches!(verb, "list" | "watch") && path.name.is_empty() {
                    path.name = term("metadata.name").unwrap_or_default();
                }
                Self { verb: verb.into(), path, selected_node: term("spec.nodeName"), url: None }
            }
        }
    }

    pub(super) fn denied(&self, user: &UserInfo, reason: &str) -> ApiError {
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        if let Some(url) = &self.url {
            let what = sanitized(format!("User {:?} cannot {} path {url:?}", user.name, self.verb));
            return ApiError::forbidden_text(format!("forbidden: {what}{reason}"));
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
        let what = sanitized(format!(
            "User {:?} cannot {} resource {resource:?} in API group {:?} {scope}",
            user.name, self.verb, path.group
        ));
        let mut error = ApiError::forbidden_text(format!("{subject} is forbidden: {what}{reason}"));
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

/// Escapes untrusted names in a message like the API server (apiserver's endpoints/handlers/responsewriters).
fn sanitized(text: String) -> String {
    if text.contains(['&', '<', '>']) {
        return text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::request_info::target;

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
    fn selectors_are_read_as_the_storage_reads_them() {
        let of = |selector: &str| {
            let pinned = Attributes::new("GET", &target("/api/v1/namespaces/a/pods"), false, selector);
            (pinned.path.name, pinned.selected_node)
        };
        let name = |name: &str| (name.to_owned(), None);
        assert_eq!(of("metadata.name==s"), name("s"));
        assert_eq!(of(r"metadata.name=a\,b"), name(r"a\,b".replace('\\', "").as_str()));
        assert_eq!(of(r"x=a\,metadata.name=s"), name(""), "a comma that is escaped ends no term");
        assert_eq!(of("metadata.name=a=b"), name(""), "it cannot be read");
        assert_eq!(of("metadata.name!=s,spec.nodeName=n"), (String::new(), Some("n".to_owned())));
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
