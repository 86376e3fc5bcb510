//! TokenReviews and SelfSubjectReviews: the identity of a user.

use jiff::Timestamp;
use sampan_json::SetField;
use serde_json::{Value, json};

use crate::resource::status::{ApiError, ApiResult};
use crate::state::Inner;
use apimachinery::json::{items, text};
use apimachinery::meta;
use apimachinery::user::UserInfo;

/// The status of a TokenReview.
pub(super) fn token(inner: &Inner, spec: &Value) -> ApiResult<Value> {
    let token = text(spec, "token");
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let wanted: Vec<String> = items(spec, "audiences").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if let Some(proven) = inner.account_token(token, &wanted) {
        return Ok(json!({ "authenticated": true, "user": info(&proven.user), "audiences": proven.audiences }));
    }
    // Of the fixed tokens none is for an audience.
    Ok(match inner.token_user(token).filter(|_| wanted.is_empty()) {
        Some(user) => json!({ "authenticated": true, "user": info(&user) }),
        None => json!({ "user": {}, "error": "invalid bearer token" }),
    })
}

/// The answer to a SelfSubjectReview.
pub(super) fn own(user: &UserInfo) -> Value {
    json!({
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": { "creationTimestamp": meta::rfc3339(Timestamp::now()) },
        "status": { "userInfo": info(user) },
    })
}

fn info(user: &UserInfo) -> Value {
    let mut info = json!({ "username": user.name, "groups": user.groups });
    if !user.uid.is_empty() {
        info.set("uid", user.uid.as_str().into());
    }
    if !user.extra.is_empty() {
        info.set("extra", json!(user.extra));
    }
    info
}
