//! The modes of impersonation, and the rights that each requires
//! (K8s apiserver's endpoints/filters/impersonation/mode.go).

use crate::auth::request_info::ResourcePath;
use crate::auth::{Attributes, Authorizer};
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::names;
use apimachinery::user::{
    ANONYMOUS, AUTHENTICATED, MASTERS, NODE_PREFIX, NODES, UNAUTHENTICATED, UserInfo, account_groups, split_account,
};

/// From this number of names on, one question about all of them comes first.
const MANY: usize = 4;
const AUTHENTICATION: &str = "authentication.k8s.io";
/// Extra key with the node of the pod of an account's token.
const NODE_KEY: &str = "authentication.kubernetes.io/node-name";

/// A mode of impersonation. All but the last apply only to some requests, and also require the right to make the
/// request in that way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// An account as the node that its pod runs on.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    /// Only the verb `impersonate`.
    Legacy,
}

fn node_name(user: &str) -> Option<&str> {
    user.strip_prefix(NODE_PREFIX).filter(|name| names::dns_subdomain(name).is_empty())
}

impl Mode {
    pub(super) const ALL: [Self; 5] =
        [Self::AssociatedNode, Self::ArbitraryNode, Self::ServiceAccount, Self::UserInfo, Self::Legacy];

    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    fn verb(self) -> String {
        if self == Self::Legacy { "impersonate".to_owned() } else { format!("impersonate:{}", self.name()) }
    }

    /// Whether it is a way to act as this one at all.
    pub(super) fn serves(self, wanted: &UserInfo, user: &UserInfo) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let (node, account) = (node_name(&wanted.name), split_account(&wanted.name));
        match self {
            Self::AssociatedNode => {
                let own = user.extra.get(NODE_KEY).and_then(|nodes| <&[String; 1]>::try_from(nodes.as_slice()).ok());
                let own = own.map(|[node]| node.as_str()).filter(|_| split_account(&user.name).is_some());
                only_name && node.is_some() && node == own
            }
            Self::ArbitraryNode => only_name && node.is_some(),
            Self::ServiceAccount => only_name && account.is_some(),
            Self::UserInfo => node.is_none() && account.is_none(),
            Self::Legacy => true,
        }
    }

    /// The identity that the user then has.
    ///
    /// # Errors
    /// 403: the first right that is missing.
    pub(super) fn check(
        self,
        authorizer: &Authorizer,
        user: &UserInfo,
        wanted: &UserInfo,
        request: &Attributes,
    ) -> ApiResult<UserInfo> {
        if self != Self::Legacy {
            let verb = format!("impersonate-on:{}:{}", self.name(), request.verb);
            authorizer.authorize(user, &Attributes { verb, ..request.clone() })?;
        }
        let asks = Asks { mode: self, authorizer, user };
        let mut acting = wanted.clone();
        asks.name(&mut acting)?;
        if !wanted.uid.is_empty() {
            asks.may(AUTHENTICATION, "uids", "", &wanted.uid)?;
        }
        asks.groups(&wanted.groups)?;
        asks.extra(wanted)?;
        if acting.name == ANONYMOUS {
            ensure(&mut acting, UNAUTHENTICATED);
        } else if !acting.in_group(UNAUTHENTICATED) {
            ensure(&mut acting, AUTHENTICATED);
        }
        Ok(acting)
    }
}

fn ensure(user: &mut UserInfo, group: &str) {
    if !user.in_group(group) {
        user.groups.push(group.to_owned());
    }
}

/// The questions of one mode about one user.
struct Asks<'a> {
    mode: Mode,
    authorizer: &'a Authorizer,
    user: &'a UserInfo,
}

impl Asks<'_> {
    /// The group of users and groups.
    fn group(&self) -> &'static str {
        if self.mode == Mode::Legacy { "" } else { AUTHENTICATION }
    }

    fn attributes(&self, group: &str, resource: &str, subresource: &str, name: &str) -> Attributes {
        let path = ResourcePath {
            group: group.into(),
            version: "v1".into(),
            resource: resource.into(),
            subresource: subresource.into(),
            name: name.into(),
            ..ResourcePath::default()
        };
        Attributes { verb: self.mode.verb(), path, selected_node: None, url: None }
    }

    fn may(&self, group: &str, resource: &str, subresource: &str, name: &str) -> ApiResult<()> {
        self.authorizer.authorize(self.user, &self.attributes(group, resource, subresource, name))
    }

    fn refuse(&self, attributes: &Attributes, why: &str) -> ApiError {
        attributes.denied(self.user, why)
    }

    /// The name, and the groups that it brings along.
    fn name(&self, acting: &mut UserInfo) -> ApiResult<()> {
        let mut attributes = self.attributes(self.group(), "users", "", &acting.name);
        if self.mode != Mode::Legacy
            && let Some(name) = node_name(&acting.name)
        {
            attributes.path.resource = "nodes".into();
            // When the right is granted, the name of the account's node may be unknown.
            attributes.path.name = if self.mode == Mode::AssociatedNode { "*".into() } else { name.to_owned() };
            acting.groups = vec![NODES.to_owned()];
        }
        if let Some((namespace, name)) = split_account(&acting.name) {
            attributes.path.resource = "serviceaccounts".into();
            namespace.clone_into(&mut attributes.path.namespace);
            name.clone_into(&mut attributes.path.name);
            if acting.groups.is_empty() {
                acting.groups = account_groups(namespace).into();
            }
        }
        self.authorizer.authorize(self.user, &attributes)
    }

    fn groups(&self, groups: &[String]) -> ApiResult<()> {
        let refuse = |name: &str, why: &str| Err(self.refuse(&self.attributes(self.group(), "groups", "", name), why));
        if self.mode != Mode::Legacy {
            if groups.iter().any(String::is_empty) {
                return refuse("", "impersonating the empty string group is not allowed");
            }
            if groups.iter().any(|group| group == MASTERS) {
                return refuse(MASTERS, "impersonating the system:masters group is not allowed");
            }
            if groups.len() >= MANY && self.may(self.group(), "groups", "", "*").is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|group| self.may(self.group(), "groups", "", group))
    }

    fn extra(&self, wanted: &UserInfo) -> ApiResult<()> {
        let values = || wanted.extra.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
        if self.mode != Mode::Legacy {
            if let Some(why) = wanted.extra.iter().find_map(|(key, values)| wrong_extra(key, values)) {
                return Err(self.refuse(&self.attributes(AUTHENTICATION, "userextras", "", ""), &why));
            }
            if values().count() >= MANY && self.may(AUTHENTICATION, "userextras", "*", "*").is_ok() {
                return Ok(());
            }
        }
        values().try_for_each(|(key, value)| self.may(AUTHENTICATION, "userextras", key, value))
    }
}

/// Error of an extra that only the last mode accepts.
fn wrong_extra(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let invalid = |why: &str| Some(format!("impersonating an invalid key in extra is not allowed: {why}"));
    let Some((host, path)) = key.split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty()) else {
        return invalid(&format!(
            "extra.key: Invalid value: {key:?}: must be a domain-prefixed path (such as \"acme.io/foo\")"
        ));
    };
    if let Some(why) = names::dns_subdomain(host).first() {
        return invalid(&format!("extra.key: Invalid value: {host:?}: {why}"));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
    if !path.chars().all(plain) {
        return invalid(&format!("extra.key: Invalid value: {path:?}: Invalid path"));
    }
    if key.chars().any(|c| c.is_uppercase()) {
        return Some(format!("impersonating a non-lowercase key in extra is not allowed: {key:?}"));
    }
    let empty = values.iter().any(String::is_empty);
    empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
}
