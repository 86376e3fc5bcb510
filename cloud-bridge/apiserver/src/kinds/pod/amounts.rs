//! Total requests of a pod: of its containers and sidecars together, of one of its init containers, or of the pod
//! itself. Follows component-helpers' resource/helpers.go. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use apimachinery::json::{entries, items, text};
use apimachinery::quantity::Quantity;

/// Amounts by the name of the resource.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// The amounts of one list.
pub(crate) fn amounts(holder: &Value, list: &str) -> Amounts {
    let read = |(name, value): (&String, &Value)| Some((name.clone(), Quantity::from_value(value)?));
    entries(holder, list).filter_map(read).collect()
}

/// Adds amounts to others.
pub(crate) fn add(all: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        all.entry(name.clone()).and_modify(|sum| *sum = sum.plus(*amount)).or_insert(*amount);
    }
}

fn at_least(all: &mut Amounts, least: &Amounts) {
    for (name, amount) in least {
        all.entry(name.clone()).and_modify(|most| *most = (*most).max(*amount)).or_insert(*amount);
    }
}

/// Total `requests` or `limits` of a pod. `levels` are the resources that a pod may set as a whole.
pub(crate) fn total(spec: &Value, list: &str, levels: fn(&str) -> bool) -> Amounts {
    let mut all = Amounts::new();
    for container in items(spec, "containers") {
        add(&mut all, &amounts(&container["resources"], list));
    }
    let (mut sidecars, mut first) = (Amounts::new(), Amounts::new());
    for container in items(spec, "initContainers") {
        let own = amounts(&container["resources"], list);
        let sidecar = text(container, "restartPolicy") == "Always";
        if sidecar {
            add(&mut all, &own);
            add(&mut sidecars, &own);
        }
        // Resources that it does not name were counted with the sidecars before it.
        let beside = |(name, amount): (&String, &Quantity)| {
            let others = sidecars.get(name).copied();
            (
                name.clone(),
                if sidecar { others.unwrap_or(*amount) } else { others.map_or(*amount, |sum| amount.plus(sum)) },
            )
        };
        at_least(&mut first, &own.iter().map(beside).collect());
    }
    at_least(&mut all, &first);
    let whole = amounts(&spec["resources"], list).into_iter();
    all.extend(whole.filter(|(name, _)| levels(name)));
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_needs_what_runs_at_once() {
        let of = |cpu: &str, sidecar: bool| {
            let policy = if sidecar { json!("Always") } else { Value::Null };
            json!({"restartPolicy": policy, "resources": {"requests": {"cpu": cpu}}})
        };
        let cpu = |spec: &Value| total(spec, "requests", |name| name == "cpu")["cpu"].to_string();
        let mut spec = json!({"containers": [of("1", false), of("500m", false)]});
        assert_eq!(cpu(&spec), "1500m");
        spec["initContainers"] = json!([of("3", false), of("1", true)]);
        assert_eq!(cpu(&spec), "3");
        spec["initContainers"] = json!([of("2", true), of("3", false)]);
        assert_eq!(cpu(&spec), "5", "the init container beside the sidecar");
        spec["resources"] = json!({"requests": {"cpu": "100m", "memory": "1Gi"}});
        assert_eq!(cpu(&spec), "100m");
        assert!(!total(&spec, "requests", |name| name == "cpu").contains_key("memory"));
    }
}
