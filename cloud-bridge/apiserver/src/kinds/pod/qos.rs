//! The quality of service class of a pod. Follows component-helpers' resource/qos. Pure.

use serde_json::Value;

use apimachinery::json::items;
use apimachinery::quantity::Quantity;

/// `Guaranteed`, `Burstable` or `BestEffort`, from CPU and memory of all containers (init containers too), or of the
/// pod as a whole if it sets them.
pub(crate) fn class(spec: &Value) -> &'static str {
    let amount = |resources: &Value, list: &str, name: &str| {
        Quantity::from_value(&resources[list][name]).filter(|q| !q.is_zero())
    };
    let pod_level = spec.get("resources").filter(|r| r.is_object());
    let all: Vec<&Value> = match pod_level {
        Some(resources) => vec![resources],
        None => items(spec, "containers")
            .iter()
            .chain(items(spec, "initContainers"))
            .map(|container| &container["resources"])
            .collect(),
    };
    let mut any = false;
    let mut guaranteed = true;
    for resources in all {
        for name in ["cpu", "memory"] {
            let (request, limit) = (amount(resources, "requests", name), amount(resources, "limits", name));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn classes() {
        let full = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        let one = json!({"requests": {"cpu": "100m"}});
        assert_eq!(class(&json!({"containers": [{"resources": full}]})), "Guaranteed");
        assert_eq!(class(&json!({"containers": [{"resources": full}, {"resources": {}}]})), "Burstable");
        assert_eq!(class(&json!({"containers": [{"resources": one}]})), "Burstable");
        assert_eq!(class(&json!({"containers": [{}]})), "BestEffort");
        assert_eq!(class(&json!({"resources": full, "containers": [{}]})), "Guaranteed");
    }
}
