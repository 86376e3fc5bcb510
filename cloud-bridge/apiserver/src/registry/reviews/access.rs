//! Access reviews, answered by the authorizers that decide on requests
//! (K8s pkg/registry/authorization, pkg/apis/authorization/validation).

use sampan_json::SetField;
use serde_json::{Value, json};

use super::selectors;
use crate::auth::request_info::ResourcePath;
use crate::auth::{Attributes, Decision};
use crate::resource::status::{ApiError, ApiResult};
use crate::state::Inner;
use apimachinery::field::{Errors, FieldError, invalid_struct};
use apimachinery::json::{entries, items, present, text};
use apimachinery::user::UserInfo;

const RESOURCE: &str = "resourceAttributes";
const OTHER: &str = "nonResourceAttributes";

/// A SelfSubjectAccessReview.
pub(super) fn own(inner: &Inner, user: &UserInfo, review: Value) -> ApiResult<Value> {
    let mut errors = Errors::new();
    attributes_rules(&mut errors, &review["spec"]);
    metadata(&mut errors, &review, false);
    refuse(&errors)?;
    Ok(answer(inner, user, review))
}

/// A SubjectAccessReview, or a local one of a namespace.
pub(super) fn of(inner: &Inner, mut review: Value, namespace: Option<&str>) -> ApiResult<Value> {
    if let Some(namespace) = namespace {
        local(&mut review, namespace)?;
    }
    let mut errors = Errors::new();
    let spec = &review["spec"];
    attributes_rules(&mut errors, spec);
    if text(spec, "user").is_empty() && items(spec, "groups").is_empty() {
        let detail = "at least one of user or group must be specified";
        errors.push(FieldError::invalid("spec.user", &"".into(), detail));
    }
    metadata(&mut errors, &review, namespace.is_some());
    if let Some(namespace) = namespace {
        local_rules(&mut errors, spec, namespace);
    }
    refuse(&errors)?;
    let texts =
        |value: &Value| value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let subject = UserInfo {
        name: text(spec, "user").into(),
        uid: text(spec, "uid").into(),
        groups: texts(&spec["groups"]),
        extra: entries(spec, "extra").map(|(key, values)| (key.clone(), texts(values))).collect(),
    };
    Ok(answer(inner, &subject, review))
}

/// The namespace of the path counts; the review may leave it out.
fn local(review: &mut Value, namespace: &str) -> ApiResult<()> {
    let given = text(&review["metadata"], "namespace");
    if given.is_empty() {
        apimachinery::meta::set(review, "namespace", namespace.into());
    } else if given != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

fn local_rules(errors: &mut Errors, spec: &Value, namespace: &str) {
    if let Some(attributes) = present(spec, RESOURCE) {
        let given = text(attributes, "namespace");
        if given != namespace {
            let detail = "must match metadata.namespace";
            errors.push(FieldError::invalid("spec.resourceAttributes.namespace", &given.into(), detail));
        }
    }
    if let Some(other) = present(spec, OTHER) {
        errors.push(invalid_struct("spec.nonResourceAttributes", &shown(other), "disallowed on this kind of request"));
    }
}

fn attributes_rules(errors: &mut Errors, spec: &Value) {
    match (present(spec, RESOURCE), present(spec, OTHER)) {
        (Some(_), Some(other)) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            errors.push(invalid_struct("spec.nonResourceAttributes", &shown(other), detail));
        }
        (None, None) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.push(FieldError::invalid("spec.resourceAttributes", &Value::Null, detail));
        }
        _ => {}
    }
    selectors::rules(errors, &spec[RESOURCE]);
}

fn metadata(errors: &mut Errors, review: &Value, local: bool) {
    let known = |field: &str| field == "managedFields" || (local && field == "namespace");
    if entries(review, "metadata").any(|(field, value)| !known(field) && !value.is_null()) {
        let detail = if local { "must be empty except for namespace" } else { "must be empty" };
        errors.push(FieldError::invalid("metadata", &review["metadata"], detail));
    }
}

/// The attributes as the API server shows the structure.
fn shown(other: &Value) -> String {
    let field = |name: &str| Value::from(text(other, name));
    format!(r#"{{"Path":{},"Verb":{}}}"#, field("path"), field("verb"))
}

/// 422. The kind is omitted, because the API server does not have it at that point.
fn refuse(errors: &[FieldError]) -> ApiResult<()> {
    if errors.is_empty() {
        return Ok(());
    }
    let texts: Vec<String> = errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect();
    let list = if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) };
    let mut error = ApiError::unprocessable(format!(".authorization.k8s.io \"\" is invalid: {list}"));
    error.details = json!({ "group": "authorization.k8s.io" });
    let causes = errors.iter().map(|one| (one.kind.reason(), &one.message, &one.field));
    Err(causes.fold(error, |error, (reason, message, field)| error.with_cause(reason, message, field)))
}

fn answer(inner: &Inner, user: &UserInfo, mut review: Value) -> Value {
    let spec = &review["spec"];
    let (attributes, unread) = match present(spec, OTHER) {
        Some(other) => {
            let (path, url) = (ResourcePath::default(), Some(text(other, "path").into()));
            (Attributes { verb: text(other, "verb").into(), path, selected_node: None, url }, Vec::new())
        }
        None => of_resource(&spec[RESOURCE]),
    };
    let Decision { allowed, reason } = inner.authorizer.decide(user, &attributes);
    let mut status = json!({ "allowed": allowed });
    if !reason.is_empty() {
        status.set("reason", reason.into());
    }
    if !unread.is_empty() {
        status.set("evaluationError", unread.join("; ").into());
    }
    review.set("status", status);
    review
}

/// The reviewed attributes, and errors of unreadable ones.
fn of_resource(attributes: &Value) -> (Attributes, Vec<String>) {
    let field = |name: &str| text(attributes, name).to_owned();
    let (selected_node, unread) = selectors::read(attributes);
    let asked = Attributes {
        verb: field("verb"),
        path: ResourcePath {
            group: field("group"),
            version: field("version"),
            namespace: field("namespace"),
            resource: field("resource"),
            name: field("name"),
            subresource: field("subresource"),
            rest: String::new(),
        },
        selected_node,
        url: None,
    };
    (asked, unread)
}

/// The answer to a SelfSubjectRulesReview.
pub(super) fn rules(inner: &Inner, user: &UserInfo, spec: &Value) -> ApiResult<Value> {
    let namespace = text(spec, "namespace");
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let policy = inner.authorizer.rbac.policy();
    let (rules, error) = policy.rules_for(user, namespace, None);
    let of = |field: &str, fields: &[&str]| -> Value {
        let values = rules.iter().map(|rule| rule.value()).filter(|rule| !items(rule, field).is_empty());
        let kept = values.map(|mut rule| {
            rule.as_object_mut().into_iter().for_each(|rule| rule.retain(|name, _| fields.contains(&name.as_str())));
            rule
        });
        kept.collect()
    };
    let mut status = json!({
        "resourceRules": of("resources", &["verbs", "apiGroups", "resources", "resourceNames"]),
        "nonResourceRules": of("nonResourceURLs", &["verbs", "nonResourceURLs"]),
        "incomplete": user.node_name().is_some(),
    });
    // The node authorizer decides by the references of pods.
    let node = user.node_name().map(|_| "node authorizer does not support user rule resolution".to_owned());
    let errors: Vec<String> = node.into_iter().chain(error).collect();
    match errors.as_slice() {
        [] => {}
        [one] => status.set("evaluationError", one.as_str().into()),
        many => status.set("evaluationError", format!("[{}]", many.join(", ")).into()),
    }
    Ok(json!({ "spec": {}, "status": status }))
}
