//! Questions about identities and permissions: `authentication.k8s.io` and `authorization.k8s.io`. Nothing is
//! stored.

mod access;
mod identity;
mod selectors;

use bytes::Bytes;
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenReview};
use k8s_openapi::api::authorization::v1::{
    LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
};
use sampan_json::SetField;
use serde_json::{Value, json};

use crate::auth::request_info::ResourcePath;
use crate::resource::status::{ApiError, ApiResult};
use crate::resource::typed;
use crate::state::Inner;
use apimachinery::user::UserInfo;

/// Maximum size of a review, in bytes. Any client with a token may send one; tokens and attributes are short.
pub(crate) const BODY_MAX: usize = 64 * 1024;

const LOCAL: &str = "localsubjectaccessreviews";

/// Whether a path is one of a review.
pub(crate) fn is(path: &ResourcePath) -> bool {
    let known = match path.group.as_str() {
        "authentication.k8s.io" => matches!(path.resource.as_str(), "tokenreviews" | "selfsubjectreviews"),
        "authorization.k8s.io" => matches!(
            path.resource.as_str(),
            "subjectaccessreviews" | "selfsubjectaccessreviews" | LOCAL | "selfsubjectrulesreviews"
        ),
        _ => false,
    };
    known && path.version == "v1"
}

/// Answers a review; `None` if the path is not a review.
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
    if (path.resource == LOCAL) == path.namespace.is_empty() {
        return Err(ApiError::no_resource());
    }
    if method != "POST" || !path.name.is_empty() {
        return Err(ApiError::method_not_allowed());
    }
    if body.len() > BODY_MAX {
        return Err(ApiError::too_large(BODY_MAX));
    }
    let mut review = match path.resource.as_str() {
        "tokenreviews" => {
            let mut review = typed::read::<TokenReview>(body, "TokenReview")?;
            let status = identity::token(inner, &review["spec"])?;
            review.set("status", status);
            review
        }
        "selfsubjectreviews" => {
            typed::read::<SelfSubjectReview>(body, "SelfSubjectReview")?;
            identity::own(user)
        }
        "selfsubjectrulesreviews" => {
            let review = typed::read::<SelfSubjectRulesReview>(body, "SelfSubjectRulesReview")?;
            access::rules(inner, user, &review["spec"])?
        }
        "selfsubjectaccessreviews" => {
            let review = typed::read::<SelfSubjectAccessReview>(body, "SelfSubjectAccessReview")?;
            access::own(inner, user, review)?
        }
        LOCAL => {
            let review = typed::read::<LocalSubjectAccessReview>(body, "LocalSubjectAccessReview")?;
            access::of(inner, review, Some(&path.namespace))?
        }
        _ => access::of(inner, typed::read::<SubjectAccessReview>(body, "SubjectAccessReview")?, None)?,
    };
    if !review["metadata"].is_object() {
        review.set("metadata", json!({}));
    }
    Ok(Some(review))
}
