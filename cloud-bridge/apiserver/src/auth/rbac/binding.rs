//! A binding as the index holds it: its role, and the lookup of a user among its subjects.

use serde_json::Value;

use apimachinery::json::{items, text};
use apimachinery::user::account_name;

/// The role of a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoleRef {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

impl RoleRef {
    /// A ClusterRole.
    pub(crate) fn cluster(name: &str) -> Self {
        Self { group: super::GROUP.to_owned(), kind: "ClusterRole".to_owned(), name: name.to_owned() }
    }

    pub(crate) fn of(binding: &Value) -> Self {
        let field = |name: &str| text(&binding["roleRef"], name).to_owned();
        Self { group: field("apiGroup"), kind: field("kind"), name: field("name") }
    }

    /// Message of the authorizer's cache for a missing role. Before a write of roles or bindings the message of the
    /// storage is used: it names the resource that the request `asked` for, whatever was looked up (K8s
    /// apiserver/pkg/registry/generic/registry/store.go, `qualifiedResourceFromContext`).
    pub(crate) fn missing(&self, asked: Option<&str>) -> String {
        let own = match self.kind.as_str() {
            "Role" => "role.rbac.authorization.k8s.io",
            "ClusterRole" => "clusterrole.rbac.authorization.k8s.io",
            kind => return format!("unsupported role reference kind: {kind:?}"),
        };
        format!("{} {:?} not found", asked.unwrap_or(own), self.name)
    }
}

/// A binding in the index.
#[derive(Debug)]
pub(super) struct Binding {
    /// Empty for one that counts everywhere.
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) role: RoleRef,
}

impl Binding {
    pub(super) fn of(binding: &Value) -> Self {
        let field = |name: &str| text(&binding["metadata"], name).to_owned();
        Self { namespace: field("namespace"), name: field("name"), role: RoleRef::of(binding) }
    }

    /// Text of the binding in the reason of a decision, with the subject that matched.
    pub(super) fn shown(&self, subject: &Who<'_>) -> String {
        let (kind, name) = if self.namespace.is_empty() {
            ("ClusterRoleBinding", self.name.clone())
        } else {
            ("RoleBinding", format!("{}/{}", self.name, self.namespace))
        };
        format!("{kind} {name:?} of {} {:?} to {}", self.role.kind, self.role.name, subject.shown())
    }
}

/// A subject in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who<'a> {
    User(&'a str),
    /// A service account, by its user name.
    Account(&'a str),
    Group(&'a str),
}

impl Who<'_> {
    fn shown(&self) -> String {
        match self {
            Self::User(name) => format!("User {name:?}"),
            Self::Group(name) => format!("Group {name:?}"),
            Self::Account(user) => {
                let named = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
                let (namespace, name) = named.unwrap_or(("", user));
                format!("ServiceAccount {:?}", format!("{name}/{namespace}"))
            }
        }
    }
}

/// Under which name the index has a subject.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    User { name: String, account: bool },
    Group(String),
}

impl Place {
    /// Parses a subject; `None` if it matches no user. In a RoleBinding an account may leave out its namespace.
    pub(super) fn of(subject: &Value, namespace: &str) -> Option<Self> {
        let name = text(subject, "name");
        match text(subject, "kind") {
            "User" => Some(Self::User { name: name.to_owned(), account: false }),
            "Group" => Some(Self::Group(name.to_owned())),
            "ServiceAccount" => {
                let given = text(subject, "namespace");
                let namespace = if given.is_empty() { namespace } else { given };
                (!namespace.is_empty()).then(|| Self::User { name: account_name(namespace, name), account: true })
            }
            _ => None,
        }
    }
}

/// The valid subjects of a binding, with their positions in its list.
pub(super) fn subjects(binding: &Value) -> impl Iterator<Item = (usize, Place)> + '_ {
    let namespace = text(&binding["metadata"], "namespace");
    let places = items(binding, "subjects").iter().enumerate();
    places.filter_map(move |(number, subject)| Some((number, Place::of(subject, namespace)?)))
}
