//! Prevents privilege escalation: writing a role requires its rules or the verb `escalate`; writing a binding requires
//! the rules of its role or the verb `bind` (K8s pkg/registry/rbac/*/policybased/storage.go, escalation_check.go).

use serde_json::{Value, json};

use super::attributes::Attributes as Request;
use crate::auth::Attributes;
use crate::auth::rbac::{
    CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, GROUP, Policy, ROLE_BINDINGS, ROLES, RoleRef, Rule, cover, quoted, weight,
};
use crate::auth::request_info::ResourcePath;
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::json::items;
use apimachinery::meta;
use apimachinery::user::MASTERS;

/// Before a creation, and with `old` before an update.
pub(super) fn restrict(request: &Request<'_>, new: &Value, old: Option<&Value>) -> ApiResult<()> {
    let storage = request.resource.storage.as_ref();
    let judge: fn(&Request<'_>, &Value, Option<&Value>) -> ApiResult<()> = match storage {
        ROLES | CLUSTER_ROLES => role,
        ROLE_BINDINGS | CLUSTER_ROLE_BINDINGS => binding,
        _ => return Ok(()),
    };
    if request.user.in_group(MASTERS) || old.is_some_and(|old| only_for_collection(new, old)) {
        return Ok(());
    }
    bounded(request, new, old)?;
    judge(request, new, old)
}

/// Bounds the rules, so that a user who may write roles cannot slow down authorization for others.
fn bounded(request: &Request<'_>, new: &Value, old: Option<&Value>) -> ApiResult<()> {
    let namespace = request.path.namespace.as_str();
    let has = request.inner.authorizer.rbac.policy().weight(namespace);
    match weight::refusal(namespace, has, weight::weight(new), old.map_or(0, weight::weight)) {
        Some(why) => Err(ApiError::forbidden(&request.resource, meta::text(new, "name"), &why)),
        None => Ok(()),
    }
}

/// Whether only fields have changed that the garbage collector writes.
fn only_for_collection(new: &Value, old: &Value) -> bool {
    let collected = ["ownerReferences", "finalizers", "managedFields"];
    same_but(new, old, &["metadata"]) && same_but(&new["metadata"], &old["metadata"], &collected)
}

/// Whether two objects are the same, but for these fields.
fn same_but(new: &Value, old: &Value, fields: &[&str]) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return new == old };
    let counts = |(name, _): &(&String, &Value)| !fields.contains(&name.as_str());
    new.iter().filter(counts).eq(old.iter().filter(counts))
}

fn role(request: &Request<'_>, new: &Value, old: Option<&Value>) -> ApiResult<()> {
    let path = request.path;
    let may = may(request, "escalate", &path.resource, &path.name);
    if may {
        return Ok(());
    }
    let name = meta::text(new, "name");
    let policy = request.inner.authorizer.rbac.policy();
    confirm(request, &policy, name, &Rule::all(new))?;
    // It may gather anything.
    let gathers = |role: &Value| !items(&role["aggregationRule"], "clusterRoleSelectors").is_empty();
    if gathers(new) || old.is_some_and(gathers) {
        let everything = [
            Rule::of(&json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] })),
            Rule::of(&json!({ "verbs": ["*"], "nonResourceURLs": ["*"] })),
        ];
        if confirm(request, &policy, name, &everything).is_err() {
            let why = "must have cluster-admin privileges to use the aggregationRule";
            return Err(ApiError::forbidden(&request.resource, name, why));
        }
    }
    Ok(())
}

fn binding(request: &Request<'_>, new: &Value, _old: Option<&Value>) -> ApiResult<()> {
    let role = RoleRef::of(new);
    let plural = match role.kind.as_str() {
        "Role" => "roles",
        "ClusterRole" => "clusterroles",
        _ => return Err(ApiError::unknown(role.missing(None))),
    };
    let asked = Attributes {
        verb: "bind".into(),
        path: ResourcePath {
            group: role.group.clone(),
            version: "*".into(),
            namespace: request.path.namespace.clone(),
            resource: plural.into(),
            name: role.name.clone(),
            ..ResourcePath::default()
        },
        selected_node: None,
        url: None,
    };
    if request.inner.authorizer.decide(request.user, &asked).allowed {
        return Ok(());
    }
    let policy = request.inner.authorizer.rbac.policy();
    let Some(rules) = policy.rules(&request.path.namespace, &role) else {
        return Err(ApiError::not_found(&request.resource, &role.name));
    };
    confirm(request, &policy, meta::text(new, "name"), rules)
}

/// Whether the user has this verb on roles of the request's group.
fn may(request: &Request<'_>, verb: &str, resource: &str, name: &str) -> bool {
    let asked = Attributes {
        verb: verb.into(),
        path: ResourcePath {
            group: GROUP.into(),
            version: "*".into(),
            namespace: request.path.namespace.clone(),
            resource: resource.into(),
            name: name.into(),
            ..ResourcePath::default()
        },
        selected_node: None,
        url: None,
    };
    request.inner.authorizer.decide(request.user, &asked).allowed
}

/// That the user has all these rules where the request is made.
fn confirm(request: &Request<'_>, policy: &Policy, name: &str, rules: &[Rule]) -> ApiResult<()> {
    let user = request.user;
    let (own, errors) = policy.rules_for(user, &request.path.namespace, Some(&request.resource.qualified()));
    let why = match cover::uncovered(&own, rules) {
        Ok(missing) if missing.is_empty() => return Ok(()),
        Ok(missing) => {
            let errors = errors.map(|errors| format!("; resolution errors: [{errors}]")).unwrap_or_default();
            format!(
                "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}{errors}",
                user.name,
                quoted(&user.groups),
                cover::shown(&missing)
            )
        }
        Err(cover::TooMany) => "the rules are too many to be compared with those of the user".to_owned(),
    };
    Err(ApiError::forbidden(&request.resource, name, &why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::only_for_collection;

    #[test]
    fn collection_changes_owners_and_finalizers_alone() {
        let old = json!({"metadata": {"name": "r", "finalizers": ["f"], "managedFields": [1]}, "rules": [{"verbs": ["get"]}]});
        let with = |path: &str, value| {
            let mut new = old.clone();
            *new.pointer_mut(path).unwrap() = value;
            only_for_collection(&new, &old)
        };
        assert!(with("/metadata/finalizers", json!([])) && with("/metadata/managedFields", json!(null)));
        assert!(!with("/metadata/name", json!("s")) && !with("/rules/0/verbs", json!(["*"])));
        let owned =
            json!({"metadata": {"name": "r", "ownerReferences": [{"uid": "u"}]}, "rules": [{"verbs": ["get"]}]});
        assert!(only_for_collection(&owned, &old));
        assert!(!only_for_collection(&json!({"metadata": {"name": "r"}, "rules": null}), &old));
    }
}
