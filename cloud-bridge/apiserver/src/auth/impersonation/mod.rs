//! Impersonation by request headers
//! (K8s apiserver's endpoints/filters/impersonation/constrained_impersonation.go).

mod modes;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue};

use super::{Attributes, Authorizer};
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::user::UserInfo;
use modes::Mode;

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";

/// Text of a header, lossy: a name that is not valid UTF-8 must not count as absent.
fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// Returns the user in the headers, without further checks; `None` without such headers.
///
/// # Errors
/// 400 if the headers have groups, extras or a uid but no user name.
fn wanted(headers: &HeaderMap) -> ApiResult<Option<UserInfo>> {
    let first = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            extra.entry(unescaped(key)).or_default().push(text(value));
        }
    }
    let wanted = UserInfo {
        name: first(USER),
        uid: first(UID),
        groups: headers.get_all(GROUP).iter().map(text).collect(),
        extra,
    };
    if !wanted.name.is_empty() {
        return Ok(Some(wanted));
    }
    if wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty() {
        return Ok(None);
    }
    Err(ApiError::bad_request(format!("requested {} without impersonating a user name", shown(&wanted))))
}

/// Percent-decoded; as it is when it cannot be.
fn unescaped(key: &str) -> String {
    let wrong = key.split('%').skip(1).any(|rest| !rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count().eq(&2));
    if wrong {
        return key.to_owned();
    }
    percent_encoding::percent_decode_str(key).decode_utf8_lossy().into_owned()
}

/// Formats the user like Go formats the structure.
fn shown(user: &UserInfo) -> String {
    let list = |words: &[String]| {
        let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
        if words.is_empty() { "[]string(nil)".to_owned() } else { format!("[]string{{{}}}", words.join(", ")) }
    };
    let extra: Vec<String> = user.extra.iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
    let extra = if extra.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", extra.join(", ")) };
    format!(
        "&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{}, Extra:map[string][]string{extra}}}",
        user.name,
        user.uid,
        list(&user.groups)
    )
}

/// Evaluates the impersonation headers of a request and returns the user it acts as, or `None` without such headers.
/// The constrained modes are tried before the legacy one, which gives all rights of the other user.
///
/// # Errors
/// 403 when the user may not impersonate that one, 400 for headers without a user name.
pub(crate) fn impersonate(
    authorizer: &Authorizer,
    user: &UserInfo,
    attributes: &Attributes,
    headers: &HeaderMap,
) -> ApiResult<Option<UserInfo>> {
    let Some(wanted) = wanted(headers)? else { return Ok(None) };
    let mut first = None;
    for mode in Mode::ALL.into_iter().filter(|mode| mode.serves(&wanted, user)) {
        match mode.check(authorizer, user, &wanted, attributes) {
            Ok(acting) => return Ok(Some(acting)),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| ApiError::internal("all impersonation modes failed")))
}
