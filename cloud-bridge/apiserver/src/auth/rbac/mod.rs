//! Authorization by roles and bindings (K8s plugin/pkg/auth/authorizer/rbac): the rights of a rule, the rules of a
//! user, and the rules that they cover.

mod binding;
pub(crate) mod cover;
mod followed;
mod policy;
mod rule;
#[cfg(test)]
mod tests;
pub(crate) mod weight;
mod words;

pub(crate) use binding::RoleRef;
pub(crate) use followed::Followed;
pub(crate) use policy::Policy;
pub(crate) use rule::{Rule, quoted};

/// The group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

// Where they are stored.
pub(crate) const ROLES: &str = "roles.rbac.authorization.k8s.io";
pub(crate) const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
pub(crate) const ROLE_BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
pub(crate) const CLUSTER_ROLE_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
