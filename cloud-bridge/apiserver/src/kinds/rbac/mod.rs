//! Roles and bindings of `rbac.authorization.k8s.io`, stored as in Kubernetes. `auth/rbac` evaluates them,
//! `admission/rbac` decides who may write them.

mod table;
#[cfg(test)]
mod tests;
mod validate;

use k8s_openapi::api::rbac::v1;
use serde_json::Value;

use super::kind::{Kind, PLAIN};
use crate::auth::rbac::GROUP;
use crate::codec::decode;
use crate::resource::rules::Rules;
use apimachinery::json::{items_mut, set_default_text, text};
use apimachinery::names;

/// A PUT creates missing objects, and names are whatever fits into a path (pkg/registry/rbac/role/strategy.go).
const RULES: Rules = Rules { name: names::path_segment, allow_create_on_update: true, ..Rules::BUILT_IN };

pub(crate) static ROLE: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    kind: "Role",
    plural: "roles",
    singular: "role",
    namespaced: true,
    check: Some(decode::check::<v1::Role>),
    rules: RULES,
    create: validate::role,
    update: |new, _| validate::role(new),
    table: &table::ROLE,
    ..PLAIN
};

pub(crate) static CLUSTER_ROLE: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    kind: "ClusterRole",
    plural: "clusterroles",
    singular: "clusterrole",
    check: Some(decode::check::<v1::ClusterRole>),
    rules: RULES,
    create: validate::cluster_role,
    update: validate::cluster_role_update,
    table: &table::ROLE,
    ..PLAIN
};

pub(crate) static ROLE_BINDING: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    kind: "RoleBinding",
    plural: "rolebindings",
    singular: "rolebinding",
    namespaced: true,
    check: Some(decode::check::<v1::RoleBinding>),
    rules: RULES,
    default,
    create: validate::role_binding,
    update: validate::role_binding_update,
    table: &table::ROLE_BINDING,
    ..PLAIN
};

pub(crate) static CLUSTER_ROLE_BINDING: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    kind: "ClusterRoleBinding",
    plural: "clusterrolebindings",
    singular: "clusterrolebinding",
    check: Some(decode::check::<v1::ClusterRoleBinding>),
    rules: RULES,
    default,
    create: validate::cluster_role_binding,
    update: validate::cluster_role_binding_update,
    table: &table::CLUSTER_ROLE_BINDING,
    ..PLAIN
};

/// Follows pkg/apis/rbac/v1/defaults.go.
fn default(binding: &mut Value) {
    if let Some(role) = binding.get_mut("roleRef") {
        set_default_text(role, "apiGroup", GROUP);
    }
    for subject in items_mut(binding, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            set_default_text(subject, "apiGroup", GROUP);
        }
    }
}
