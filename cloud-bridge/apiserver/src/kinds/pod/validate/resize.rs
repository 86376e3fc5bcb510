//! The `resize` subresource of a pod: cpu and memory of its containers may change, and nothing else.
//! Follows `ValidatePodResize` of pkg/apis/core/validation.

use sampan_json::SetField;
use serde_json::{Map, Value};

use super::spec;
use crate::kinds::pod::qos;
use apimachinery::field::{Errors, FieldError};
use apimachinery::json::{by_text, items, items_mut, text};
use apimachinery::well_known::MIRROR_ANNOTATION;

const LISTS: [&str; 2] = ["containers", "initContainers"];

/// The old pod with the new resources of its containers, and the version the client knew.
pub(crate) fn prepare(new: &mut Value, old: &Value) {
    let mut merged = old.clone();
    merged.set_at(&["metadata", "resourceVersion"], new.take_at(&["metadata", "resourceVersion"]));
    for list in LISTS {
        let wanted = by_text(items(&new["spec"], list), "name");
        for container in merged.get_mut("spec").into_iter().flat_map(|spec| items_mut(spec, list)) {
            let Some(wanted) = wanted.get(text(container, "name")) else { continue };
            let resources = wanted["resources"].clone();
            container.set("resources", if resources.is_null() { Map::new().into() } else { resources });
        }
    }
    *new = merged;
}

/// Validates the update after [`prepare`].
pub(crate) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if !new["metadata"]["annotations"][MIRROR_ANNOTATION].is_null() {
        errors.push(FieldError::forbidden("", "static pods cannot be resized"));
        return errors;
    }
    spec::spec_and_pod_rules(&mut errors, new);
    let class = qos::class(&new["spec"]);
    if class != qos::class(&old["spec"]) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.push(FieldError::invalid("spec", &class.into(), detail));
    }
    for list in LISTS {
        for (i, (new, old)) in items(&new["spec"], list).iter().zip(items(&old["spec"], list)).enumerate() {
            let plain_init = list == "initContainers" && text(old, "restartPolicy") != "Always";
            if plain_init && new["resources"] != old["resources"] {
                errors.push(FieldError::forbidden("spec", "resources for non-sidecar init containers are immutable"));
                continue;
            }
            let path = format!("spec.{list}[{i}].resources");
            container(&mut errors, &path, &new["resources"], &old["resources"]);
        }
    }
    errors
}

fn container(errors: &mut Errors, path: &str, new: &Value, old: &Value) {
    for (list, what) in [("requests", "resource requests"), ("limits", "resource limits")] {
        let of = |resources: &Value| resources[list].as_object().cloned().unwrap_or_default();
        let (new, old) = (of(new), of(old));
        if old.keys().any(|name| !new.contains_key(name)) {
            errors.push(FieldError::forbidden(format!("{path}.{list}"), &format!("{what} cannot be removed")));
        }
        let differs = |name: &&String| new.get(*name) != old.get(*name);
        let others = new.keys().filter(differs).any(|name| !["cpu", "memory"].contains(&name.as_str()));
        if others {
            errors.push(FieldError::forbidden("spec", "only cpu and memory resources are mutable"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::pod::defaults;

    fn pod(resources: &Value) -> Value {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "c", "image": "i", "resources": resources}]}});
        defaults::pod(&mut pod);
        pod
    }

    fn complaints(new: &Value, old: &Value) -> Vec<String> {
        let (old, mut new) = (pod(old), pod(new));
        new["spec"]["containers"][0]["image"] = "other".into();
        prepare(&mut new, &old);
        assert_eq!(new["spec"]["containers"][0]["image"], "i", "nothing else is taken over");
        update(&new, &old).into_iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
    }

    #[test]
    fn amounts_may_change_and_the_class_may_not() {
        let of = |cpu: &str| json!({"requests": {"cpu": cpu}, "limits": {"cpu": "1"}});
        let none: [String; 0] = [];
        assert_eq!(complaints(&of("200m"), &of("100m")), none);
        let class = complaints(&json!({}), &of("100m"));
        assert!(class.iter().any(|one| one.contains("Pod QOS Class may not change")), "{class:?}");
        let removed = complaints(&json!({"requests": {"cpu": "100m"}}), &of("100m"));
        assert!(removed.iter().any(|one| one.contains("resource limits cannot be removed")), "{removed:?}");
        let disk = json!({"requests": {"cpu": "100m", "ephemeral-storage": "1Mi"}, "limits": {"cpu": "1"}});
        let other = complaints(&disk, &of("100m"));
        assert!(other.iter().any(|one| one.contains("only cpu and memory")), "{other:?}");
    }
}
