//! Users of the API.

use std::collections::BTreeMap;

use crate::names;

/// The group whose members may do everything.
pub const MASTERS: &str = "system:masters";
/// The group of every identified user.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group and the name of an unauthenticated client.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of node identities.
pub const NODES: &str = "system:nodes";
/// Prefix of the user name of a node.
pub const NODE_PREFIX: &str = "system:node:";

/// Prefix of the user name of a service account.
pub const ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The name of a service account's identity.
pub fn account_name(namespace: &str, name: &str) -> String {
    format!("{ACCOUNT_PREFIX}{namespace}:{name}")
}

/// The namespace and name of a service account whose identity has this name.
pub fn split_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(ACCOUNT_PREFIX)?.split_once(':')?;
    let good = names::dns_label(namespace).is_empty() && names::dns_subdomain(name).is_empty();
    good.then_some((namespace, name))
}

/// The groups of the service accounts of a namespace.
pub fn account_groups(namespace: &str) -> [String; 2] {
    ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// An identity: from a client certificate (CN and O), a bearer token, impersonation, or the process itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserInfo {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    /// Further data from the authenticator, such as the pod to which a token is bound.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// A user of these groups, and of `system:authenticated`.
    pub fn new<I: IntoIterator<Item = S>, S: Into<String>>(name: &str, groups: I) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|g| g == AUTHENTICATED) {
            groups.push(AUTHENTICATED.into());
        }
        Self { name: name.into(), groups, ..Self::default() }
    }

    /// A member of `system:masters`.
    pub fn master(name: &str) -> Self {
        Self::new(name, [MASTERS])
    }

    /// The identity of a node, as its kubelet would have.
    pub fn node(name: &str) -> Self {
        Self::new(&format!("{NODE_PREFIX}{name}"), [NODES])
    }

    /// True for a member of the group.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// The node's name when this is a node's identity.
    pub fn node_name(&self) -> Option<&str> {
        self.in_group(NODES).then(|| self.name.strip_prefix(NODE_PREFIX)).flatten().filter(|n| !n.is_empty())
    }
}
