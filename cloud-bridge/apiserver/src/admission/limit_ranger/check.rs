//! Requests and limits of a pod or claim, compared with a range: with the messages of Kubernetes. Pure.

use std::collections::HashSet;

use serde_json::Value;

use crate::kinds::pod::amounts::{Amounts, amounts, total};
use apimachinery::json::{items, text};
use apimachinery::quantity::Quantity;

/// Errors of a pod.
pub(super) fn pod(pod: &Value, limits: &[Value]) -> Vec<String> {
    let spec = &pod["spec"];
    let mut wrong = Vec::new();
    for limit in limits {
        match text(limit, "type") {
            "Container" => {
                for container in items(spec, "containers").iter().chain(items(spec, "initContainers")) {
                    let of = |list: &str| amounts(&container["resources"], list);
                    all(&mut wrong, limit, &of("requests"), &of("limits"));
                }
            }
            "Pod" => {
                let of = |list: &str| total(spec, list, |name| matches!(name, "cpu" | "memory"));
                all(&mut wrong, limit, &of("requests"), &of("limits"));
            }
            _ => {}
        }
    }
    wrong
}

/// Errors of a claim. Its maximum is compared with its request.
pub(super) fn claim(claim: &Value, limits: &[Value]) -> Vec<String> {
    let requests = amounts(&claim["spec"]["resources"], "requests");
    let mut wrong = Vec::new();
    for limit in limits.iter().filter(|limit| text(limit, "type") == "PersistentVolumeClaim") {
        for (name, least) in amounts(limit, "min") {
            wrong.extend(too_little(limit, &name, least, &requests, &Amounts::new()));
        }
        for (name, most) in amounts(limit, "max") {
            wrong.extend(too_much(limit, &name, most, ("request", &requests), None));
        }
    }
    wrong
}

fn all(wrong: &mut Vec<String>, limit: &Value, requests: &Amounts, limits: &Amounts) {
    for (name, least) in amounts(limit, "min") {
        wrong.extend(too_little(limit, &name, least, requests, limits));
    }
    for (name, most) in amounts(limit, "max") {
        wrong.extend(too_much(limit, &name, most, ("limit", limits), Some(("request", requests))));
    }
    for (name, most) in amounts(limit, "maxLimitRequestRatio") {
        wrong.extend(too_far(limit, &name, most, requests, limits));
    }
}

fn too_little(limit: &Value, name: &str, least: Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
    let rule = format!("minimum {name} usage per {} is {least}", text(limit, "type"));
    match (requests.get(name), limits.get(name)) {
        (None, _) => Some(format!("{rule}.  No request is specified")),
        (Some(request), _) if *request < least => Some(format!("{rule}, but request is {request}")),
        (_, Some(most)) if *most < least => Some(format!("{rule}, but limit is {most}")),
        _ => None,
    }
}

/// The first list must name the resource, the other one may.
fn too_much(
    limit: &Value,
    name: &str,
    most: Quantity,
    (word, needed): (&str, &Amounts),
    other: Option<(&str, &Amounts)>,
) -> Option<String> {
    let rule = format!("maximum {name} usage per {} is {most}", text(limit, "type"));
    let Some(amount) = needed.get(name) else { return Some(format!("{rule}.  No {word} is specified")) };
    if *amount > most {
        return Some(format!("{rule}, but {word} is {amount}"));
    }
    let (word, other) = other?;
    let amount = other.get(name).filter(|amount| **amount > most)?;
    Some(format!("{rule}, but {word} is {amount}"))
}

fn too_far(limit: &Value, name: &str, most: Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
    let rule = format!("{name} max limit to request ratio per {} is {most}", text(limit, "type"));
    let some = |list: &Amounts| list.get(name).filter(|amount| !amount.is_zero()).copied();
    let Some(request) = some(requests) else {
        return Some(format!("{rule}, but no request is specified or request is 0"));
    };
    let Some(upper) = some(limits) else {
        return Some(format!("{rule}, but no limit is specified or limit is 0"));
    };
    const EXACT: i64 = i64::MAX / 1000;
    let fine = upper.units() < EXACT && request.units() < EXACT;
    let number = |amount: Quantity| if fine { amount.millis() as f64 } else { amount.units() as f64 };
    let ratio = number(upper) / number(request);
    let allowed = if most.units() < EXACT { most.millis() as f64 / 1000.0 } else { most.units() as f64 };
    (ratio > allowed).then(|| format!("{rule}, but provided ratio is {ratio:.6}"))
}

/// All of it in one sentence, each once; `None` when nothing is wrong.
pub(super) fn joined(wrong: Vec<String>) -> Option<String> {
    let mut seen = HashSet::new();
    let told: Vec<String> = wrong.into_iter().filter(|one| seen.insert(one.clone())).collect();
    match told.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(resources: Value, limit: Value) -> Option<String> {
        let one = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
        joined(pod(&one, &[limit]))
    }

    #[test]
    fn a_container_keeps_within_its_limits() {
        let limit = json!({"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "2"},
            "maxLimitRequestRatio": {"cpu": "4"}});
        let of = |request: &str, most: &str| {
            told(json!({"requests": {"cpu": request}, "limits": {"cpu": most}}), limit.clone())
        };
        assert_eq!(of("1", "2"), None);
        assert_eq!(of("50m", "100m").unwrap(), "minimum cpu usage per Container is 100m, but request is 50m");
        assert_eq!(of("1", "3").unwrap(), "maximum cpu usage per Container is 2, but limit is 3");
        assert_eq!(
            of("300m", "1300m").unwrap(),
            "cpu max limit to request ratio per Container is 4, but provided ratio is 4.333333"
        );
        assert_eq!(
            told(json!({}), limit).unwrap(),
            "[minimum cpu usage per Container is 100m.  No request is specified, maximum cpu usage per Container is 2.  No \
             limit is specified, cpu max limit to request ratio per Container is 4, but no request is specified or request \
             is 0]"
        );
    }

    #[test]
    fn a_pod_is_measured_as_a_whole_and_a_claim_by_what_it_requests() {
        let limit = json!({"type": "Pod", "max": {"memory": "1Gi"}});
        let container = json!({"resources": {"limits": {"memory": "600Mi"}, "requests": {"memory": "1Mi"}}});
        let two = json!({"spec": {"containers": [container, container]}});
        assert_eq!(pod(&two, &[limit]), ["maximum memory usage per Pod is 1Gi, but limit is 1200Mi"]);
        let limit = json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}});
        let of = |size: &str| {
            let resources = json!({"requests": {"storage": size}});
            claim(&json!({"spec": {"resources": resources}}), std::slice::from_ref(&limit))
        };
        assert_eq!(of("1Gi"), Vec::<String>::new());
        assert_eq!(of("1Mi"), ["minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"]);
        assert_eq!(of("3Gi"), ["maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"]);
    }
}
