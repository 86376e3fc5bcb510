//! POST of `serviceaccounts/NAME/token`: a signed token for the account, bound to an object if asked.
//! K8s pkg/registry/core/serviceaccount/storage/token.go and pkg/apis/authentication/validation.

use bytes::Bytes;
use k8s_openapi::api::authentication::v1::TokenRequest;
use sampan_json::SetField;
use serde_json::{Value, json};

use crate::auth::accounts::{Accounts, ISSUER};
use crate::registry::answer::Answer;
use crate::registry::context::Context;
use crate::registry::subresource::driver_audiences;
use crate::resource::status::{ApiError, ApiResult};
use crate::resource::typed;
use crate::storage::Store;
use apimachinery::clock;
use apimachinery::field::FieldError;
use apimachinery::json::{items, text};
use apimachinery::key::ObjectKey;
use apimachinery::meta;

/// Default lifetime of a token, and its limits, in seconds.
const DEFAULT: i64 = 3600;
const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;

/// The object that a token is bound to, as its claims and its checks need it.
struct Bound {
    claims: Vec<(&'static str, Value)>,
}

pub(crate) fn create(ctx: &mut Context<'_>, body: &Bytes) -> ApiResult<Answer> {
    let Some(accounts) = ctx.inner.config.accounts.clone() else {
        return Err(ApiError::unavailable("this server has no key for service account tokens"));
    };
    let mut request = typed::read::<TokenRequest>(body, "TokenRequest")?;
    let store = ctx.store();
    let account = ctx.current(&store)?;
    let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT);
    let name = ctx.path.name.as_str();
    validate(ctx, name, &request, seconds)?;
    if let Some(node) = ctx.user.node_name() {
        restrict(ctx, &store, node, &request)?;
    }
    let bound = bound(ctx, &store, name, &request["spec"]["boundObjectRef"])?;
    drop(store);

    let given: Vec<&str> =
        request["spec"]["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let audiences =
        if given.is_empty() { vec![ISSUER.to_owned()] } else { given.into_iter().map(str::to_owned).collect() };
    let now = clock::timestamp().as_second();
    let life = granted(seconds, ctx.inner.config.token_life_max);
    if life < seconds {
        let text = format!("requested expiration of {seconds} seconds shortened to {life} seconds");
        ctx.warnings.push(text);
    }
    let mut private = json!({
        "namespace": ctx.path.namespace,
        "serviceaccount": {"name": name, "uid": meta::text(account.value(), "uid")},
    });
    for (kind, value) in bound.claims {
        private.set(kind, value);
    }
    let claims = json!({
        "aud": audiences,
        "exp": now + life,
        "iat": now,
        "iss": ISSUER,
        "jti": meta::new_uid(),
        "kubernetes.io": private,
        "nbf": now,
        "sub": format!("system:serviceaccount:{}:{name}", ctx.path.namespace),
    });
    let token = sign(&accounts, &claims)?;
    let expires = jiff::Timestamp::from_second(now + life).map_err(ApiError::internal)?;
    request.set("apiVersion", "authentication.k8s.io/v1".into());
    request.set("kind", "TokenRequest".into());
    request.set(
        "metadata",
        json!({
            "name": name, "namespace": ctx.path.namespace, "creationTimestamp": meta::rfc3339(ctx.now),
        }),
    );
    request.set_at(&["spec", "audiences"], json!(audiences));
    request.set_at(&["spec", "expirationSeconds"], life.into());
    if request["spec"].get("boundObjectRef").is_none() {
        request.set_at(&["spec", "boundObjectRef"], Value::Null);
    }
    request.set("status", json!({"token": token, "expirationTimestamp": meta::rfc3339(expires)}));
    Ok(Answer::Plain(201, request))
}

/// Lifetime of a token: the requested one, within the limits (K8s `--service-account-max-token-expiration`).
fn granted(asked: i64, longest: Option<i64>) -> i64 {
    longest.map_or(asked, |longest| asked.min(longest))
}

fn sign(accounts: &Accounts, claims: &Value) -> ApiResult<String> {
    accounts.key.sign(claims).map_err(ApiError::internal)
}

fn validate(ctx: &Context<'_>, name: &str, request: &Value, seconds: i64) -> ApiResult<()> {
    let field = "spec.expirationSeconds";
    let given = meta::text(request, "name");
    if !given.is_empty() && given != name {
        return Err(ApiError::bad_request("name in URL does not match name in TokenRequest object"));
    }
    let wrong = match seconds {
        s if s < SHORTEST => {
            FieldError::invalid(field, &seconds.into(), "may not specify a duration less than 10 minutes")
        }
        s if s > LONGEST => {
            FieldError::invalid(field, &seconds.into(), "may not specify a duration larger than 2^32 seconds")
        }
        _ => return Ok(()),
    };
    let mut error = ApiError::invalid(&ctx.resource, name, &[wrong]);
    error.message = error.message.replacen("ServiceAccount", "TokenRequest.authentication.k8s.io", 1);
    error.details.set("group", "authentication.k8s.io".into());
    error.details.set("kind", "TokenRequest".into());
    Err(error)
}

fn bound(ctx: &Context<'_>, store: &Store, account: &str, reference: &Value) -> ApiResult<Bound> {
    if !reference.is_object() {
        return Ok(Bound { claims: Vec::new() });
    }
    let kind = reference["kind"].as_str().unwrap_or_default();
    let (storage, claim, namespace) = match (reference["apiVersion"].as_str().unwrap_or_default(), kind) {
        ("v1", "Pod") => ("pods", "pod", ctx.path.namespace.as_str()),
        ("v1", "Secret") => ("secrets", "secret", ctx.path.namespace.as_str()),
        ("v1", "Node") => ("nodes", "node", ""),
        (version, _) => {
            return Err(ApiError::bad_request(format!("cannot bind token to object of type {version}, Kind={kind}")));
        }
    };
    let name = reference["name"].as_str().unwrap_or_default();
    let key = ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() };
    let resource = ctx.inner.registry.find("", "v1", storage).ok_or_else(ApiError::no_resource)?;
    let found = store.get(storage, &key)?.ok_or_else(|| ApiError::not_found(&resource, name))?;
    let uid = meta::text(found.value(), "uid");
    let asked = reference["uid"].as_str().unwrap_or_default();
    if !asked.is_empty() && asked != uid {
        let why = format!(
            "the UID in the bound object reference ({asked}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict(&resource, name, &why));
    }
    let mut claims = vec![(claim, json!({"name": name, "uid": uid}))];
    if storage == "pods" {
        let other = found.value()["spec"]["serviceAccountName"].as_str().unwrap_or_default();
        if other != account {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
            )));
        }
        if let Some(node) = found.value()["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
            let mut claim = json!({"name": node});
            let known = store.get("nodes", &ObjectKey { namespace: String::new(), name: node.to_owned() })?;
            if let Some(known) = known {
                claim.set("uid", meta::text(known.value(), "uid").into());
            }
            claims.push(("node", claim));
        }
    }
    Ok(Bound { claims })
}

/// Requests that NodeRestriction allows a node: tokens bound to its own pods, for audiences that the pod names.
fn restrict(ctx: &Context<'_>, store: &Store, node: &str, request: &Value) -> ApiResult<()> {
    let refuse = |why: &str| Err(ApiError::forbidden(&ctx.resource, &ctx.path.name, why));
    let reference = &request["spec"]["boundObjectRef"];
    let (name, uid) = (text(reference, "name"), text(reference, "uid"));
    if reference["kind"] != "Pod" || reference["apiVersion"] != "v1" || name.is_empty() {
        return refuse("node requested token not bound to a pod");
    }
    if uid.is_empty() {
        return refuse("node requested token with a pod binding without a uid");
    }
    let key = ObjectKey { namespace: ctx.path.namespace.clone(), name: name.to_owned() };
    let Some(pod) = store.get("pods", &key)? else {
        let pods = ctx.inner.registry.find("", "v1", "pods").ok_or_else(ApiError::no_resource)?;
        return Err(ApiError::not_found(&pods, name));
    };
    if meta::text(pod.value(), "uid") != uid {
        return refuse(&format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        ));
    }
    if pod.value()["spec"]["nodeName"] != node {
        return refuse("node requested token bound to a pod scheduled on a different node");
    }
    let volumes = pod.value()["spec"]["volumes"].as_array().into_iter().flatten();
    let sources = volumes.flat_map(|v| v["projected"]["sources"].as_array().into_iter().flatten());
    let named: Vec<&str> = sources.filter_map(|s| s["serviceAccountToken"]["audience"].as_str()).collect();
    if items(&request["spec"], "audiences").len() > 1 {
        return refuse("node may only request 0 or 1 audiences");
    }
    for audience in request["spec"]["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let is_named = audience.is_empty() || audience == ISSUER || named.contains(&audience);
        if !is_named && !driver_audiences::asks(store, pod.value(), audience)? {
            return refuse(&format!(
                "audience {audience:?} not found in pod spec volume, {node:?} is not authorized to request tokens for this audience"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tokens_life_is_within_what_is_set() {
        assert_eq!(granted(1 << 32, None), 1 << 32);
        assert_eq!(granted(1 << 32, Some(86_400)), 86_400);
        assert_eq!(granted(600, Some(86_400)), 600);
    }
}
