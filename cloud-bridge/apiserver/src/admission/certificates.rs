//! Admission of certificate requests: the requester, and the rights to approve and sign (K8s
//! plugin/pkg/admission/certificates: approval, signing, subjectrestriction; the part of the strategy that needs the
//! requester).

use jiff::Timestamp;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::attributes::Attributes as Request;
use crate::auth::Attributes;
use crate::auth::request_info::ResourcePath;
use crate::kinds::certificate_signing_request::{CLIENT_SIGNER, STORAGE, subject};
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::json::{items, text};
use apimachinery::meta;
use apimachinery::user::MASTERS;

/// Before a creation: the server sets the user, not the request.
pub(super) fn create(request: &Request<'_>, new: &mut Value) -> ApiResult<()> {
    if request.resource.storage != STORAGE {
        return Ok(());
    }
    let user = request.user;
    for (field, value) in [
        ("username", json!(user.name)),
        ("uid", if user.uid.is_empty() { Value::Null } else { json!(user.uid) }),
        ("groups", json!(user.groups)),
        ("extra", if user.extra.is_empty() { Value::Null } else { json!(user.extra) }),
    ] {
        new.set_at(&["spec", field], value);
    }
    let spec = &new["spec"];
    let masters = || subject(spec).is_ok_and(|subject| subject.groups.iter().any(|group| group == MASTERS));
    if text(spec, "signerName") == CLIENT_SIGNER && masters() {
        let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
        return Err(ApiError::forbidden(&request.resource, meta::text(new, "name"), &why));
    }
    Ok(())
}

/// Before an update of the approval or of the status.
pub(super) fn update(request: &Request<'_>, new: &mut Value, old: &Value) -> ApiResult<()> {
    if request.resource.storage != STORAGE {
        return Ok(());
    }
    let signer = text(&old["spec"], "signerName");
    let of = |object: &Value, kind: &str| {
        items(&object["status"], "conditions").iter().find(|one| one["type"] == kind).cloned()
    };
    let (verb, word) = match request.path.subresource.as_str() {
        "approval" => ("approve", "approve"),
        "status"
            if new["status"]["certificate"] != old["status"]["certificate"]
                || of(new, "Failed") != of(old, "Failed") =>
        {
            ("sign", "sign")
        }
        "status" => return stamped(new, old),
        _ => return Ok(()),
    };
    let domain = signer.split_once('/').map(|(domain, _)| format!("{domain}/*")).unwrap_or_default();
    if ![signer, &domain].iter().any(|name| may(request, verb, name)) {
        let why = format!("user not permitted to {word} requests with signerName {signer:?}");
        return Err(ApiError::forbidden(&request.resource, &request.path.name, &why));
    }
    stamped(new, old)
}

fn may(request: &Request<'_>, verb: &str, signer: &str) -> bool {
    let path = ResourcePath {
        group: "certificates.k8s.io".into(),
        version: "*".into(),
        resource: "signers".into(),
        name: signer.into(),
        ..ResourcePath::default()
    };
    let asked = Attributes { verb: verb.into(), path, selected_node: None, url: None };
    request.inner.authorizer.decide(request.user, &asked).allowed
}

/// Fills in the transition times of conditions that do not have one.
fn stamped(new: &mut Value, old: &Value) -> ApiResult<()> {
    let now = meta::rfc3339(Timestamp::now());
    let before = items(&old["status"], "conditions").to_vec();
    let conditions =
        new.get_mut("status").and_then(|status| status.get_mut("conditions")).and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let same = before.iter().find(|one| one["type"] == condition["type"] && one["status"] == condition["status"]);
        if condition["lastTransitionTime"].is_null() {
            let since = same.map(|one| one["lastTransitionTime"].clone()).filter(|since| !since.is_null());
            condition.set("lastTransitionTime", since.unwrap_or_else(|| now.clone().into()));
        }
        if condition["lastUpdateTime"].is_null() {
            condition.set("lastUpdateTime", now.clone().into());
        }
    }
    Ok(())
}
