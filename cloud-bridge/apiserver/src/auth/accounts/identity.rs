//! Identity of a service account token: its signature, its times, and whether the object that it is bound to still
//! exists (K8s pkg/serviceaccount/claims.go, `Validate`).

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use jiff::Timestamp;
use serde_json::Value;

use super::{Accounts, ISSUER};
use crate::storage::Store;
use apimachinery::clock;
use apimachinery::key::ObjectKey;
use apimachinery::meta;
use apimachinery::user::{UserInfo, account_groups, account_name};

/// Time for which an object under deletion still counts after its deletion time.
const LEEWAY_S: i64 = 60;

/// A token that holds.
pub(crate) struct Proven {
    pub(crate) user: UserInfo,
    /// Those of the wanted audiences that the token is for.
    pub(crate) audiences: Vec<String>,
}

/// Identifies the token of a TokenReview; without audiences, for the audience of this API.
pub(crate) fn review<'a>(
    accounts: &Accounts,
    store: impl FnOnce() -> MutexGuard<'a, Store>,
    token: &str,
    wanted: &[String],
) -> Option<Proven> {
    let claims = accounts.key.verify(token)?;
    if claims["iss"] != ISSUER || !in_time(&claims, clock::timestamp()) {
        return None;
    }
    let own = [ISSUER.to_owned()];
    let wanted = if wanted.is_empty() { &own[..] } else { wanted };
    let held: Vec<&str> = claims["aud"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let audiences: Vec<String> = wanted.iter().filter(|a| held.contains(&a.as_str())).cloned().collect();
    if audiences.is_empty() {
        return None;
    }
    let private = &claims["kubernetes.io"];
    let namespace = private["namespace"].as_str()?;
    let account = &private["serviceaccount"];
    let store = store();
    let alive = |storage: &str, namespace: &str, claim: &Value| present(&store, storage, namespace, claim);
    let bound = [("pods", "pod", namespace), ("secrets", "secret", namespace), ("nodes", "node", "")];
    if !alive("serviceaccounts", namespace, account) {
        return None;
    }
    // The node of a pod's token is only information; a token bound only to the node depends on it.
    let by_node = private["pod"].is_null();
    for (storage, claim, namespace) in bound {
        let claim = &private[claim];
        if claim.is_object() && (storage != "nodes" || by_node) && !alive(storage, namespace, claim) {
            return None;
        }
    }
    let name = account["name"].as_str()?;
    let mut user = UserInfo::new(&account_name(namespace, name), account_groups(namespace));
    user.uid = account["uid"].as_str()?.to_owned();
    user.extra = extra(&claims);
    Some(Proven { user, audiences })
}

/// Whether a token has not expired. Its start is not checked: only this server signs tokens, so a start in the future
/// means that the clock went back, as on a board without a battery at each boot.
fn in_time(claims: &Value, now: Timestamp) -> bool {
    claims["exp"].as_i64().is_some_and(|end| end > now.as_second())
}

/// Whether the object of this name is still the one with this uid, and not long on its way out.
fn present(store: &Store, storage: &str, namespace: &str, claim: &Value) -> bool {
    let (Some(name), Some(uid)) = (claim["name"].as_str(), claim["uid"].as_str()) else { return false };
    let key = ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() };
    let Ok(Some(found)) = store.get(storage, &key) else { return false };
    let deleted = found.value()["metadata"]["deletionTimestamp"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    // By the clock that wrote it.
    let now = Timestamp::now().as_second();
    meta::text(found.value(), "uid") == uid && deleted.is_none_or(|at| at.as_second() + LEEWAY_S >= now)
}

fn extra(claims: &Value) -> BTreeMap<String, Vec<String>> {
    let private = &claims["kubernetes.io"];
    let facts = [
        ("credential-id", claims["jti"].as_str().map(|id| format!("JTI={id}"))),
        ("node-name", private["node"]["name"].as_str().map(str::to_owned)),
        ("node-uid", private["node"]["uid"].as_str().map(str::to_owned)),
        ("pod-name", private["pod"]["name"].as_str().map(str::to_owned)),
        ("pod-uid", private["pod"]["uid"].as_str().map(str::to_owned)),
    ];
    let known = facts.into_iter().filter_map(|(name, value)| Some((name, value?)));
    known.map(|(name, value)| (format!("authentication.kubernetes.io/{name}"), vec![value])).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_holds_while_the_clock_is_behind() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let of = |start: i64, end: i64| json!({"nbf": start, "exp": end});
        assert!(in_time(&of(1_800_000_000, 1_800_003_600), now));
        assert!(in_time(&of(1_900_000_000, 1_900_003_600), now), "made before the clock went back");
        assert!(!in_time(&of(1_700_000_000, 1_800_000_000), now));
        assert!(!in_time(&json!({"nbf": 1}), now), "it has to have an end");
    }
}
