//! The `ephemeralcontainers` subresource of a pod: containers may be added to the list, and nothing else.
//! As `ValidatePodEphemeralContainersUpdate` of pkg/apis/core/validation.

use sampan_json::SetField;
use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use super::container::{PodFacts, ephemeral};
use super::volume;
use apimachinery::field::{Errors, FieldError};
use apimachinery::json::{by_text, integer, items, present, text};
use apimachinery::well_known::MIRROR_ANNOTATION;

const FIELD: &str = "spec.ephemeralContainers";

/// The old pod with the new list.
pub(crate) fn prepare(new: &mut Value, old: &Value) {
    let list = new.take_at(&["spec", "ephemeralContainers"]);
    let version = new.take_at(&["metadata", "resourceVersion"]);
    new.clone_from(old);
    new.set_at(&["metadata", "resourceVersion"], version);
    if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
        if list.is_null() {
            spec.remove("ephemeralContainers");
        } else {
            spec.insert("ephemeralContainers".into(), list);
        }
    }
}

/// Validates the update after [`prepare`].
pub(crate) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let (spec, before) = (&new["spec"], items(&old["spec"], "ephemeralContainers"));
    let list = items(spec, "ephemeralContainers");
    if !new["metadata"]["annotations"][MIRROR_ANNOTATION].is_null() {
        errors.push(FieldError::forbidden("", "static pods do not support ephemeral containers"));
        return errors;
    }
    let facts = PodFacts {
        volumes: volume::volumes(&mut Errors::new(), "spec.volumes", spec),
        claims: BTreeSet::new(),
        grace: integer(spec, "terminationGracePeriodSeconds"),
        os: present(spec, "os").map(|os| text(os, "name")),
        restart_policy: text(spec, "restartPolicy"),
        host_users: spec["hostUsers"] != false,
    };
    let usual: HashSet<&str> =
        ["containers", "initContainers"].iter().flat_map(|l| items(spec, l)).map(|c| text(c, "name")).collect();
    let mut taken: HashSet<&str> = usual.clone();
    for (i, container) in list.iter().enumerate() {
        let path = format!("{FIELD}[{i}]");
        ephemeral(&mut errors, &path, container, &facts);
        let name = text(container, "name");
        if !taken.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
        }
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !usual.contains(target) {
            errors.push(FieldError::not_found(format!("{path}.targetContainerName"), &target.into()));
        }
    }
    let kept = by_text(list, "name");
    for old in before {
        let name = text(old, "name");
        let fate = match kept.get(name) {
            None => "removed",
            Some(new) if *new != old => "changed",
            Some(_) => continue,
        };
        errors
            .push(FieldError::forbidden(FIELD, &format!("existing ephemeral containers {name:?} may not be {fate}\n")));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::pod::defaults;

    fn pod(ephemeral: &Value) -> Value {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "c", "image": "i"}], "ephemeralContainers": ephemeral}});
        defaults::pod(&mut pod);
        pod
    }

    fn complaints(new: &Value, old: &Value) -> Vec<String> {
        let (old, mut new) = (pod(old), pod(new));
        new["spec"]["hostNetwork"] = true.into();
        prepare(&mut new, &old);
        assert!(new["spec"]["hostNetwork"].is_null(), "nothing else is taken over");
        update(&new, &old).into_iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
    }

    #[test]
    fn containers_may_only_be_added() {
        let one = json!({"name": "d", "image": "i", "targetContainerName": "c", "stdin": true});
        let two = json!({"name": "e", "image": "i"});
        let none: [String; 0] = [];
        assert_eq!(complaints(&json!([one]), &json!([])), none);
        assert_eq!(complaints(&json!([one, two]), &json!([one])), none);
        let text = "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be";
        assert_eq!(complaints(&json!([two]), &json!([one])), [format!("{text} removed\n")]);
        let other = json!({"name": "d", "image": "other"});
        assert_eq!(complaints(&json!([other]), &json!([one])), [format!("{text} changed\n")]);
    }

    #[test]
    fn what_an_ephemeral_container_cannot_have() {
        let bad = json!({"name": "c", "image": "i", "targetContainerName": "x", "ports": [{"containerPort": 1}],
                         "resources": {"limits": {"cpu": "1"}}, "livenessProbe": {"exec": {"command": ["x"]}}});
        let all = complaints(&json!([bad]), &json!([]));
        for text in [
            "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
            "spec.ephemeralContainers[0].resources: Forbidden: cannot be set for an Ephemeral Container",
            "spec.ephemeralContainers[0].livenessProbe: Forbidden: cannot be set for an Ephemeral Container",
            "spec.ephemeralContainers[0].name: Duplicate value: \"c\"",
            "spec.ephemeralContainers[0].targetContainerName: Not found: \"x\"",
        ] {
            assert!(all.iter().any(|one| one == text), "{text} in {all:?}");
        }
    }
}
