//! The client for which requests, connections and bytes are counted.

use std::sync::Arc;

use crate::user::{MASTERS, UserInfo};

const ACCOUNTS: &str = "system:serviceaccount:";
const SYSTEM_ACCOUNTS: &str = "system:serviceaccount:kube-system";

/// The client for which an amount is counted. The service accounts of a namespace count as one, because a user who may
/// create one may create many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// `None` for a client without limits.
    name: Option<Arc<str>>,
    /// A component of the cluster.
    system: bool,
}

impl Flow {
    /// A part of this process, or an administrator.
    pub fn unlimited() -> Self {
        Self { name: None, system: true }
    }

    /// A user. Administrators have no limits, as in Kubernetes (flow schema `exempt`).
    pub fn of(user: &UserInfo) -> Self {
        if user.in_group(MASTERS) {
            return Self::unlimited();
        }
        let account = user.name.strip_prefix(ACCOUNTS);
        let namespace = account.and_then(|rest| rest.split(':').next()).map(str::len);
        let name = namespace.and_then(|length| user.name.get(..ACCOUNTS.len() + length)).unwrap_or(&user.name);
        let system = if account.is_some() { name == SYSTEM_ACCOUNTS } else { name.starts_with("system:") };
        Self { name: Some(name.into()), system }
    }

    /// The service accounts of a namespace, for requests whose user is not known.
    pub fn of_namespace(namespace: &str) -> Self {
        let name = format!("{ACCOUNTS}{namespace}");
        Self { system: name == SYSTEM_ACCOUNTS, name: Some(name.into()) }
    }

    /// The name to count by; `None` for a client without limits.
    pub fn name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }

    /// Whether this is a component of the cluster, for which a part of each limit is kept.
    pub fn is_system(&self) -> bool {
        self.system
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_count_by_namespace_and_administrators_not() {
        let of = |name: &str| {
            let flow = Flow::of(&UserInfo::new(name, ["system:authenticated"]));
            (flow.name().unwrap().to_string(), flow.is_system())
        };
        assert_eq!(of("system:serviceaccount:a:b"), ("system:serviceaccount:a".to_owned(), false));
        assert_eq!(of("system:serviceaccount:kube-system:b"), ("system:serviceaccount:kube-system".to_owned(), true));
        assert_eq!(Flow::of_namespace("a"), Flow::of(&UserInfo::new("system:serviceaccount:a:b", [""; 0])));
        assert!(Flow::of_namespace("kube-system").is_system());
        assert_eq!(of("system:kube-scheduler"), ("system:kube-scheduler".to_owned(), true));
        assert_eq!(of("eve"), ("eve".to_owned(), false));
        assert!(Flow::of(&UserInfo::master("admin")).name().is_none());
    }
}
