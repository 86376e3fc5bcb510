//! Authentication and authorization: bearer tokens, impersonation, and the decision on each request. Anonymous requests
//! are refused.

pub(crate) mod accounts;
pub(crate) mod attributes;
pub(crate) mod impersonation;
pub(crate) mod node;
pub(crate) mod rbac;
pub(crate) mod request_info;
#[cfg(test)]
mod tests;

pub(crate) use attributes::Attributes;

use crate::resource::status::ApiResult;
use crate::storage::{Store, StoreError};
use apimachinery::user::{MASTERS, UserInfo};

/// A decision and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) allowed: bool,
    /// May be empty.
    pub(crate) reason: String,
}

/// All authorizers, one after the other: administrators, nodes by what their pods name, everyone by roles.
#[derive(Default)]
pub(crate) struct Authorizer {
    related: node::Related,
    pub(crate) rbac: rbac::Followed,
}

impl Authorizer {
    /// Reads all existing objects and follows later writes.
    pub(crate) fn follow(&self, store: &mut Store) -> Result<(), StoreError> {
        self.related.follow(store)?;
        self.rbac.follow(store)
    }

    /// Decides. If no authorizer allows the request, their reasons are combined (apiserver's authorization/union).
    pub(crate) fn decide(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        if user.in_group(MASTERS) {
            return Decision { allowed: true, reason: String::new() };
        }
        let mut reasons = Vec::new();
        if let (Some(node), None) = (user.node_name(), &attributes.url) {
            match node::authorize(&self.related.relations(), node, attributes) {
                Ok(()) => return Decision { allowed: true, reason: String::new() },
                Err(reason) => reasons.push(reason),
            }
        }
        match self.rbac.policy().authorize(user, attributes) {
            Ok(reason) => return Decision { allowed: true, reason },
            Err(reason) => reasons.push(reason),
        }
        reasons.retain(|reason| !reason.is_empty());
        Decision { allowed: false, reason: reasons.join("\n") }
    }

    /// `decide`, as a 403.
    pub(crate) fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> ApiResult<()> {
        let Decision { allowed, reason } = self.decide(user, attributes);
        if allowed { Ok(()) } else { Err(attributes.denied(user, &reason)) }
    }
}
