//! Whether an object fits into the quotas of a namespace, and their usage afterwards: with the messages of Kubernetes.
//! Pure. Follows apiserver pkg/admission/plugin/resourcequota.

use jiff::Timestamp;
use sampan_json::SetField;
use serde_json::{Map, Value};

use crate::kinds::pod::amounts::{Amounts, add, amounts};
use crate::kinds::resource_quota::usage::{in_scope, takes, unnamed, usage};
use apimachinery::meta;
use apimachinery::quantity::Quantity;

/// An object before it is written.
pub(super) struct Request<'a> {
    /// `pods` or `deployments.apps`.
    pub(super) resource: &'a str,
    pub(super) new: &'a Value,
    pub(super) old: Option<&'a Value>,
    /// The usage in the status, whether the object is allowed or not.
    pub(super) status: bool,
    pub(super) now: Timestamp,
}

/// The quotas that change, by their place, as they are then.
pub(super) fn charge(quotas: &[&Value], request: &Request<'_>) -> Result<Vec<(usize, Value)>, String> {
    let mut concerned = Vec::new();
    for (place, quota) in quotas.iter().enumerate() {
        if let Some(names) = limited(quota, request)? {
            concerned.push((place, *quota, names));
        }
    }
    if concerned.is_empty() {
        return Ok(Vec::new());
    }
    let wanted = usage(request.resource, request.new, request.now);
    let negative: Vec<&str> =
        wanted.iter().filter(|(_, amount)| amount.is_negative()).map(|(name, _)| name.as_str()).collect();
    if !negative.is_empty() {
        return Err(format!("quota usage is negative for resource(s): {}", negative.join(",")));
    }
    let mut changed = Vec::new();
    for (place, quota, _) in concerned {
        let more = more(quota, request, &wanted);
        if !more.is_empty() {
            changed.push((place, charged(quota, &more, request.status)?));
        }
    }
    Ok(changed)
}

/// The names of a quota that the object counts for, if there are any and its scopes choose the object.
fn limited(quota: &Value, request: &Request<'_>) -> Result<Option<Vec<String>>, String> {
    let (hard, used) = (amounts(&quota["status"], "hard"), amounts(&quota["status"], "used"));
    let names: Vec<String> = hard.into_keys().filter(|name| takes(request.resource, name)).collect();
    if names.is_empty() || !in_scope(request.resource, quota, request.new) {
        return Ok(None);
    }
    let name = meta::text(quota, "name");
    if request.resource == "pods" {
        let needed: Vec<&str> = names.iter().map(String::as_str).collect();
        let missing: Vec<String> = unnamed(request.new, &needed)
            .into_iter()
            .map(|(what, containers)| format!("{what} for: {}", containers.join(",")))
            .collect();
        if !missing.is_empty() {
            return Err(format!("failed quota: {name}: must specify {}", missing.join("; ")));
        }
    }
    if names.iter().any(|name| !used.contains_key(name)) {
        return Err(format!("status unknown for quota: {name}, resources: {}", names.join(",")));
    }
    Ok(Some(names))
}

/// Increase of the object's usage.
fn more(quota: &Value, request: &Request<'_>, wanted: &Amounts) -> Amounts {
    let mut more = wanted.clone();
    if let Some(old) = request.old.filter(|old| in_scope(request.resource, quota, old)) {
        for (name, had) in usage(request.resource, old, request.now) {
            if let Some(amount) = more.get_mut(&name) {
                *amount = if *amount > had { amount.minus(had) } else { Quantity::ZERO };
            }
        }
    }
    more.retain(|_, amount| !amount.is_zero());
    more
}

/// The quota when this is used, too.
fn charged(quota: &Value, more: &Amounts, status: bool) -> Result<Value, String> {
    let (hard, used) = (amounts(&quota["status"], "hard"), amounts(&quota["status"], "used"));
    let more: Amounts = more
        .iter()
        .filter(|(name, _)| hard.contains_key(*name))
        .map(|(name, amount)| (name.clone(), *amount))
        .collect();
    let mut sum = used.clone();
    add(&mut sum, &more);
    let exceeds = |name: &&String| sum.get(*name).zip(hard.get(*name)).is_some_and(|(sum, hard)| sum > hard);
    let exceeded: Vec<&String> = more.keys().filter(exceeds).collect();
    if !exceeded.is_empty() && !status {
        let shown = |all: &Amounts| -> String {
            let amounts = exceeded.iter().filter_map(|name| Some(format!("{name}={}", all.get(*name)?)));
            amounts.collect::<Vec<_>>().join(",")
        };
        let name = meta::text(quota, "name");
        return Err(format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            shown(&more),
            shown(&used),
            shown(&hard)
        ));
    }
    let mut quota = quota.clone();
    let sum: Map<String, Value> = sum.into_iter().map(|(name, amount)| (name, amount.to_string().into())).collect();
    quota.set_at(&["status", "used"], sum.into());
    Ok(quota)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn quota(hard: Value, used: Value) -> Value {
        json!({"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}})
    }

    fn pod(cpu: &str) -> Value {
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
    }

    fn asked<'a>(resource: &'a str, new: &'a Value, old: Option<&'a Value>) -> Request<'a> {
        Request { resource, new, old, status: false, now: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn a_pod_is_charged_to_every_quota_that_knows_it() {
        let quota = quota(
            json!({"pods": "2", "requests.cpu": "2", "secrets": "1"}),
            json!({"pods": "1", "requests.cpu": "1", "secrets": "0"}),
        );
        let changed = charge(&[&quota], &asked("pods", &pod("500m"), None)).unwrap();
        assert_eq!(changed[0].1["status"]["used"], json!({"pods": "2", "requests.cpu": "1500m", "secrets": "0"}));
        let why = charge(&[&changed[0].1], &asked("pods", &pod("750m"), None)).unwrap_err();
        assert_eq!(
            why,
            "exceeded quota: q, requested: pods=1,requests.cpu=750m, used: pods=2,requests.cpu=1500m, limited: \
             pods=2,requests.cpu=2"
        );
        let other = json!({"metadata": {}});
        assert_eq!(charge(&[&quota], &asked("configmaps", &other, None)), Ok(vec![]));
    }

    #[test]
    fn what_is_limited_must_be_named() {
        let quota =
            quota(json!({"limits.cpu": "2", "requests.cpu": "1"}), json!({"limits.cpu": "0", "requests.cpu": "0"}));
        let why = charge(&[&quota], &asked("pods", &pod("1"), None)).unwrap_err();
        assert_eq!(why, "failed quota: q: must specify limits.cpu for: c");
        let unknown = json!({"metadata": {"name": "q"}, "status": {"hard": {"pods": "1"}}});
        let why = charge(&[&unknown], &asked("pods", &pod("1"), None)).unwrap_err();
        assert_eq!(why, "status unknown for quota: q, resources: pods");
        // A quota that was not yet counted.
        let new = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}, "status": {}});
        assert_eq!(charge(&[&new], &asked("pods", &pod("1"), None)), Ok(vec![]));
    }

    #[test]
    fn a_change_costs_what_it_adds() {
        let hard = json!({"services.nodeports": "2", "services": "1"});
        let quota = quota(hard, json!({"services.nodeports": "1", "services": "1"}));
        let service = |kind: &str, ports: usize| json!({"spec": {"type": kind, "ports": vec![json!({}); ports]}});
        let (old, new) = (service("NodePort", 1), service("NodePort", 2));
        let changed = charge(&[&quota], &asked("services", &new, Some(&old))).unwrap();
        assert_eq!(changed[0].1["status"]["used"], json!({"services": "1", "services.nodeports": "2"}));
        let less = charge(&[&quota], &asked("services", &service("ClusterIP", 2), Some(&old)));
        assert_eq!(less, Ok(vec![]), "what is freed is counted later");
        let third = service("NodePort", 3);
        assert!(
            charge(&[&quota], &asked("services", &third, Some(&old))).unwrap_err().starts_with("exceeded quota: q")
        );
        let told = Request { status: true, ..asked("services", &third, Some(&old)) };
        assert_eq!(charge(&[&quota], &told).unwrap().len(), 1);
    }
}
