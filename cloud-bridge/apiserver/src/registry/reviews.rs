//! Questions about identities and permissions: `authentication.k8s.io` and `authorization.k8s.io`. Nothing is
//! stored.

use bytes::Bytes;
use edge_protocol::json::SetField;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenReview};
use k8s_openapi::api::authorization::v1::{
    LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
};
use serde_json::{Value, json};

use crate::auth::request_info::ResourcePath;
use crate::auth::{self, Attributes};
use crate::resource::status::{ApiError, ApiResult};
use crate::resource::typed;
use crate::state::Inner;
use apimachinery::meta;
use apimachinery::user::UserInfo;

/// The largest review. Whoever has a token may send some of them, and a token or an attribute is no long text.
pub(crate) const BODY_MAX: usize = 64 * 1024;

/// Whether a path is one of a review.
pub(crate) fn is(path: &ResourcePath) -> bool {
    let known = match path.group.as_str() {
        "authentication.k8s.io" => matches!(path.resource.as_str(), "tokenreviews" | "selfsubjectreviews"),
        "authorization.k8s.io" => matches!(
            path.resource.as_str(),
            "subjectaccessreviews"
                | "selfsubjectaccessreviews"
                | "localsubjectaccessreviews"
                | "selfsubjectrulesreviews"
        ),
        _ => false,
    };
    known && path.version == "v1"
}

/// The answer to a review; `None` when the path is no review.
pub(crate) fn answer(
    inner: &Inner,
    user: &UserInfo,
    path: &ResourcePath,
    method: &str,
    body: &Bytes,
) -> ApiResult<Option<Value>> {
    if !is(path) {
        return Ok(None);
    }
    if method != "POST" || !path.name.is_empty() {
        return Err(ApiError::method_not_allowed());
    }
    if body.len() > BODY_MAX {
        return Err(ApiError::too_large(BODY_MAX));
    }
    let mut review = match path.resource.as_str() {
        "tokenreviews" => typed::read::<TokenReview>(body, "TokenReview"),
        "selfsubjectreviews" => typed::read::<SelfSubjectReview>(body, "SelfSubjectReview"),
        "selfsubjectrulesreviews" => typed::read::<SelfSubjectRulesReview>(body, "SelfSubjectRulesReview"),
        "selfsubjectaccessreviews" => typed::read::<SelfSubjectAccessReview>(body, "SelfSubjectAccessReview"),
        "localsubjectaccessreviews" => typed::read::<LocalSubjectAccessReview>(body, "LocalSubjectAccessReview"),
        _ => typed::read::<SubjectAccessReview>(body, "SubjectAccessReview"),
    }?;
    let spec = review["spec"].clone();
    let status = match path.resource.as_str() {
        "tokenreviews" => token(inner, &spec),
        "selfsubjectreviews" => json!({ "userInfo": info(user) }),
        "selfsubjectrulesreviews" => json!({
            "resourceRules": [], "nonResourceRules": [], "incomplete": true,
            "evaluationError": "rules are not enumerable here",
        }),
        "selfsubjectaccessreviews" => access(inner, user, &spec),
        _ => {
            let groups = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
            let subject = UserInfo {
                name: spec["user"].as_str().unwrap_or_default().into(),
                uid: String::new(),
                groups: groups.collect(),
            };
            access(inner, &subject, &spec)
        }
    };
    review.set("status", status);
    if !review["metadata"].is_object() {
        review.set("metadata", json!({}));
    }
    if path.resource == "selfsubjectreviews" {
        meta::set(&mut review, "creationTimestamp", meta::rfc3339(Timestamp::now()).into());
    }
    Ok(Some(review))
}

fn token(inner: &Inner, spec: &Value) -> Value {
    let text = spec["token"].as_str().unwrap_or_default();
    let wanted: Vec<String> =
        spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    if let Some(proven) = inner.account_token(text, &wanted) {
        let mut user = info(&proven.user);
        user.set("extra", proven.extra);
        return json!({ "authenticated": true, "user": user, "audiences": proven.audiences });
    }
    // Of the fixed tokens none is for an audience.
    match inner.token_user(text).filter(|_| wanted.is_empty()) {
        Some(user) => json!({ "authenticated": true, "user": info(&user) }),
        None => json!({ "user": {}, "error": "invalid bearer token" }),
    }
}

fn info(user: &UserInfo) -> Value {
    let mut info = json!({ "username": user.name, "groups": user.groups });
    if !user.uid.is_empty() {
        info.set("uid", user.uid.as_str().into());
    }
    info
}

fn access(inner: &Inner, user: &UserInfo, spec: &Value) -> Value {
    let attributes = match spec.get("nonResourceAttributes").filter(|v| v.is_object()) {
        Some(other) => Attributes {
            verb: other["verb"].as_str().unwrap_or_default().into(),
            path: ResourcePath::default(),
            selected_node: None,
            url: Some(other["path"].as_str().unwrap_or_default().into()),
        },
        None => {
            let text = |field: &str| spec["resourceAttributes"][field].as_str().unwrap_or_default().to_owned();
            Attributes {
                verb: text("verb"),
                path: ResourcePath {
                    group: text("group"),
                    version: text("version"),
                    namespace: text("namespace"),
                    resource: text("resource"),
                    name: text("name"),
                    subresource: text("subresource"),
                    rest: String::new(),
                },
                selected_node: None,
                url: None,
            }
        }
    };
    match auth::decide(&inner.related, user, &attributes) {
        Ok(()) => json!({ "allowed": true }),
        Err(reason) if reason.is_empty() => json!({ "allowed": false }),
        Err(reason) => json!({ "allowed": false, "reason": reason }),
    }
}
