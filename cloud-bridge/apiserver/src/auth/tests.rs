//! All authorizers together.

use serde_json::json;

use super::*;
use crate::controllers::bootstrap_policy;
use crate::kinds;
use crate::resource::ALL_VERBS;
use rbac::{CLUSTER_ROLE_BINDINGS, GROUP, ROLE_BINDINGS};
use request_info::{ResourcePath, target};

/// An authorizer with the default roles and bindings.
fn authorizer() -> Authorizer {
    let authorizer = Authorizer::default();
    for (storage, object) in bootstrap_policy::objects() {
        authorizer.rbac.change(storage, None, Some(&object));
    }
    authorizer
}

/// Every verb on every resource, of everything, of one and of the node's own; except reviews, with which every user may
/// ask about themselves.
fn everything() -> Vec<Attributes> {
    let verbs = ALL_VERBS.iter().copied().chain(["impersonate", "escalate", "bind", "approve", "proxy"]);
    let places = [("", ""), ("", "n1"), ("ns", ""), ("ns", "x"), ("kube-node-lease", "n1")];
    let mut all = Vec::new();
    for verb in verbs {
        for resource in kinds::resources().into_iter().filter(|resource| resource.verbs.contains(&"get")) {
            let subs = resource.subresources.iter().map(|sub| sub.name.to_string());
            for subresource in std::iter::once(String::new()).chain(subs) {
                for (namespace, name) in places {
                    let path = ResourcePath {
                        group: resource.group.to_string(),
                        version: resource.version.to_string(),
                        namespace: namespace.into(),
                        resource: resource.plural.to_string(),
                        name: name.into(),
                        subresource: subresource.clone(),
                        rest: String::new(),
                    };
                    all.push(Attributes { verb: verb.into(), path, selected_node: None, url: None });
                }
            }
        }
    }
    all
}

#[test]
fn default_roles_give_a_node_nothing() {
    let authorizer = authorizer();
    let node = UserInfo::node("n1");
    let mut allowed = 0;
    for attributes in everything() {
        let alone = node::authorize(&authorizer.related.relations(), "n1", &attributes);
        let together = authorizer.decide(&node, &attributes);
        assert_eq!(together.allowed, alone.is_ok(), "{attributes:?}: {}", together.reason);
        assert_eq!(together.reason, alone.err().unwrap_or_default(), "{attributes:?}");
        allowed += usize::from(together.allowed);
    }
    assert!(allowed > 20, "{allowed}");
    // The group of nodes without a node's name gives no rights.
    let group = UserInfo::new("mallory", [apimachinery::user::NODES]);
    assert!(everything().iter().all(|attributes| !authorizer.decide(&group, attributes).allowed));
}

#[test]
fn what_somebody_binds_to_nodes_they_get_as_on_kubernetes() {
    let authorizer = authorizer();
    let binding = json!({"metadata": {"namespace": "ns", "name": "b"},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "Group", "apiGroup": GROUP, "name": "system:nodes"}]});
    let view = json!({"metadata": {"name": "view"}, "rules": [
        {"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]}]});
    authorizer.rbac.change(rbac::CLUSTER_ROLES, None, Some(&view));
    let asked = |namespace: &str| {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        authorizer.decide(&UserInfo::node("n1"), &Attributes::new("GET", &target(&path), false, ""))
    };
    assert_eq!(asked("ns"), Decision { allowed: false, reason: "No Object name found".into() });
    authorizer.rbac.change(ROLE_BINDINGS, None, Some(&binding));
    assert!(asked("ns").allowed);
    assert_eq!(asked("other"), Decision { allowed: false, reason: "No Object name found".into() });
    // Both have a reason.
    let lost = json!({"metadata": {"name": "lost"},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "gone"}, "subjects": binding["subjects"]});
    authorizer.rbac.change(CLUSTER_ROLE_BINDINGS, None, Some(&lost));
    let both = "No Object name found\nRBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found";
    assert_eq!(asked("other").reason, both);
}

#[test]
fn everyone_may_look_around_and_ask_about_themselves() {
    let authorizer = authorizer();
    let may = |groups: &[&str], method: &str, path: &str| {
        let user = UserInfo {
            name: "eve".into(),
            groups: groups.iter().map(|g| (*g).to_owned()).collect(),
            ..UserInfo::default()
        };
        authorizer.decide(&user, &Attributes::new(method, &target(path), false, "")).allowed
    };
    let known = ["system:authenticated"].as_slice();
    for path in
        ["/api", "/api/v1", "/apis", "/apis/apps/v1", "/openapi/v3", "/version", "/healthz", "/livez", "/readyz"]
    {
        assert!(may(known, "GET", path), "{path}");
        assert!(!may(known, "POST", path) && !may(&["people"], "GET", path), "{path}");
    }
    for path in ["/metrics", "/livez/ping", "/", "/logs"] {
        assert!(!may(known, "GET", path), "{path}");
    }
    assert!(may(&["system:monitoring"], "GET", "/livez/ping"));
    for review in ["authorization.k8s.io/v1/selfsubjectaccessreviews", "authentication.k8s.io/v1/selfsubjectreviews"] {
        assert!(may(known, "POST", &format!("/apis/{review}")), "{review}");
    }
    for review in ["authorization.k8s.io/v1/subjectaccessreviews", "authentication.k8s.io/v1/tokenreviews"] {
        assert!(!may(known, "POST", &format!("/apis/{review}")), "{review}");
    }
    assert!(may(&["system:masters"], "DELETE", "/api/v1/nodes/n"));
}
