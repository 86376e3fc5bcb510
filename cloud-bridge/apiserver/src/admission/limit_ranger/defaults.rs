//! The amounts that a container gets that names none. Pure.

use sampan_json::SetField;
use serde_json::{Map, Value};

use apimachinery::json::{entries, items_mut, object_mut, text};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Sets defaults of a pod's containers from one range, and notes them in an annotation.
pub(super) fn fill(pod: &mut Value, limits: &[Value]) {
    let of = |list: &str| -> Map<String, Value> {
        let containers = limits.iter().filter(|limit| text(limit, "type") == "Container");
        containers.flat_map(|limit| entries(limit, list)).map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let (requests, most) = (of("defaultRequest"), of("default"));
    let Some(spec) = pod.get_mut("spec") else { return };
    let mut told = Vec::new();
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        for container in items_mut(spec, list) {
            let of = format!("for {what} {}", text(container, "name"));
            for (list, word, defaults) in [("requests", "request", &requests), ("limits", "limit", &most)] {
                let set = adopt(container, list, defaults);
                if !set.is_empty() {
                    told.push(format!("{} {word} {of}", set.join(", ")));
                }
            }
        }
    }
    if !told.is_empty() {
        let text = format!("LimitRanger plugin set: {}", told.join("; "));
        pod.set_at(&["metadata", "annotations", ANNOTATION], text.into());
    }
}

/// Sets the resources that a container omits; returns their names.
fn adopt(container: &mut Value, list: &str, defaults: &Map<String, Value>) -> Vec<String> {
    let own = |name: &&String| container["resources"][list].get(name.as_str()).is_none();
    let mut missing: Vec<String> = defaults.keys().filter(own).cloned().collect();
    missing.sort_unstable();
    if missing.is_empty() {
        return missing;
    }
    object_mut(container, "resources");
    let Some(list) = container.get_mut("resources").and_then(|resources| object_mut(resources, list)) else {
        return Vec::new();
    };
    for name in &missing {
        if let Some(amount) = defaults.get(name) {
            list.insert(name.clone(), amount.clone());
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_named_stays_and_what_is_set_is_told() {
        let limits = [
            json!({"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "500m"}}),
            json!({"type": "Pod", "max": {"cpu": "9"}}),
        ];
        let mut pod = json!({"metadata": {}, "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}], "initContainers": [{"name": "i"}]}});
        fill(&mut pod, &limits);
        assert_eq!(
            pod["spec"]["containers"][0]["resources"],
            json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "500m"}})
        );
        assert_eq!(
            pod["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu request for container c; memory limit for container c; cpu request for init \
             container i; cpu, memory limit for init container i"
        );
        let once = pod.clone();
        fill(&mut pod, &limits);
        assert_eq!(pod, once);
        let mut strange = json!({"spec": {"containers": [{"resources": 1}]}});
        fill(&mut strange, &limits);
        assert_eq!(strange["spec"]["containers"][0]["resources"], 1);
    }
}
