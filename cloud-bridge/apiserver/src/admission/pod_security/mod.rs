//! The PodSecurity admission: pods must meet the Pod Security Standard in the labels of their namespace (K8s
//! pod-security-admission admission/admission.go). Exemptions are not supported.

mod checks;
mod existing;
mod policy;

use std::collections::HashMap;

use serde_json::Value;

use super::attributes::{Attributes, subject};
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::Store;
use apimachinery::json::{items, present, text};
use apimachinery::key::ObjectKey;
use checks::{details, violations};
use policy::{Level, PREFIX, Policy};

/// Refuses objects that violate the namespace's policy, and returns its warnings.
pub(super) fn admit(store: &Store, ctx: &Attributes<'_>, new: &Value, old: Option<&Value>) -> ApiResult<Vec<String>> {
    let main = ctx.path.subresource.is_empty();
    let storage = ctx.resource.storage.as_ref();
    if ctx.resource.rules().admit_pods {
        let changed = old.is_none_or(|old| significant(&new["spec"], &old["spec"]));
        if ctx.path.subresource == "status" || !changed {
            return Ok(Vec::new());
        }
        return pod(store, ctx, new, true);
    }
    if storage == "namespaces" && main {
        return existing::judge(store, ctx, new, old);
    }
    let pointer = ctx.resource.rules().template.filter(|_| main);
    match pointer.and_then(|pointer| new.pointer(pointer)).filter(|template| template.is_object()) {
        Some(template) => pod(store, ctx, template, false),
        None => Ok(Vec::new()),
    }
}

/// Applies the policy to one pod or template.
fn pod(store: &Store, ctx: &Attributes<'_>, pod: &Value, enforce: bool) -> ApiResult<Vec<String>> {
    let Some(policy) = of_namespace(store, &ctx.path.namespace)? else { return Ok(Vec::new()) };
    if enforce {
        let wrong = violations(policy.enforce, pod);
        if !wrong.is_empty() {
            let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, details(&wrong));
            return Err(ApiError::forbidden(&ctx.resource, subject(pod), &why));
        }
    }
    let would = |standard| {
        let wrong = violations(standard, pod);
        (!wrong.is_empty()).then(|| format!("would violate PodSecurity \"{standard}\": {}", details(&wrong)))
    };
    // There is only the program's log, and no audit log.
    if let Some(text) = would(policy.audit) {
        let (namespace, name) = (&ctx.path.namespace, &ctx.path.name);
        let name = if name.is_empty() { subject(pod) } else { name };
        log::info!("{} {namespace}/{name} of user {} {text}", ctx.resource.singular, ctx.user.name);
    }
    Ok(would(policy.warn).into_iter().collect())
}

/// The policy of a namespace that has one.
fn of_namespace(store: &Store, namespace: &str) -> ApiResult<Option<Policy>> {
    let Some(stored) = store.get("namespaces", &ObjectKey::cluster(namespace))? else { return Ok(None) };
    // Most have none, and their bodies need not be parsed for that.
    if !stored.body.windows(PREFIX.len()).any(|part| part == PREFIX.as_bytes()) {
        return Ok(None);
    }
    let (policy, _) = Policy::of(&stored.value()["metadata"]["labels"]);
    let some = [policy.enforce, policy.audit, policy.warn].iter().any(|one| one.level != Level::Privileged);
    Ok(some.then_some(policy))
}

/// Whether an update of a pod changes fields of the standards: containers, or an image (`isSignificantPodUpdate`).
fn significant(new: &Value, old: &Value) -> bool {
    let in_order = |list: &str| {
        let (new, old) = (items(new, list), items(old, list));
        new.len() != old.len() || new.iter().zip(old).any(|(new, old)| new["image"] != old["image"])
    };
    let before: HashMap<&str, &Value> =
        items(old, "ephemeralContainers").iter().map(|one| (text(one, "name"), one)).collect();
    let ephemeral = |one: &Value| {
        let before = before.get(text(one, "name")).and_then(|before| present(before, "image"));
        before != present(one, "image") || before.is_none()
    };
    in_order("containers") || in_order("initContainers") || items(new, "ephemeralContainers").iter().any(ephemeral)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_containers_and_images_are_looked_at_again() {
        let old =
            json!({"containers": [{"name": "a", "image": "x"}], "ephemeralContainers": [{"name": "e", "image": "y"}]});
        let with = |path: &str, value: Value| {
            let mut new = old.clone();
            *new.pointer_mut(path).unwrap() = value;
            significant(&new, &old)
        };
        assert!(!significant(&old, &old));
        assert!(!with("/containers/0", json!({"name": "a", "image": "x", "resources": {}})));
        assert!(with("/containers/0/image", json!("z")));
        assert!(with("/containers", json!([])));
        assert!(with("/ephemeralContainers/0/image", json!("z")));
        assert!(with("/ephemeralContainers/0/name", json!("f")));
        assert!(!with("/ephemeralContainers", json!([])));
    }
}
