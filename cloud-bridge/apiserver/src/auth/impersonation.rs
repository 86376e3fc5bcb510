//! Acting as somebody else, by the headers that ask for it.

use http::HeaderMap;

use super::Attributes;
use super::request_info::ResourcePath;
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::user::{AUTHENTICATED, MASTERS, UserInfo};

/// Follows the impersonation headers.
///
/// # Errors
/// 403 when the user may not act as another, 400 for groups without a user.
pub(crate) fn impersonate(user: &UserInfo, headers: &HeaderMap) -> ApiResult<Option<UserInfo>> {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let groups: Vec<String> =
        headers.get_all("impersonate-group").iter().filter_map(|v| v.to_str().ok()).map(str::to_owned).collect();
    let Some(name) = text("impersonate-user").filter(|n| !n.is_empty()) else {
        if groups.is_empty() && text("impersonate-uid").is_none() {
            return Ok(None);
        }
        return Err(ApiError::bad_request("requested groups or uid without impersonating a user name"));
    };
    if !user.in_group(MASTERS) {
        let attributes = Attributes {
            verb: "impersonate".into(),
            path: ResourcePath { resource: "users".into(), name, ..ResourcePath::default() },
            selected_node: None,
            url: None,
        };
        return Err(attributes.denied(user, ""));
    }
    let mut acting = UserInfo { name, uid: text("impersonate-uid").unwrap_or_default(), groups, ..UserInfo::default() };
    if !acting.groups.iter().any(|g| g == AUTHENTICATED || g == "system:unauthenticated") {
        acting.groups.push(AUTHENTICATED.into());
    }
    Ok(Some(acting))
}
