//! Labels of a namespace that is created or changed: they must be valid, and for a stricter level, existing pods that
//! violate it are listed in warnings (`ValidateNamespace`, `EvaluatePodsInNamespace`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::attributes::Attributes;
use super::checks::violations;
use super::policy::{Level, Policy, Standard};
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::{Most, Page, Store};
use apimachinery::meta;

/// Maximum number of checked pods. Kubernetes checks 3000, for a second at most; here the storage waits for it.
const PODS_MAX: usize = 500;
/// Maximum total size of these pods, in bytes: the same order as above, and few pods of the largest size.
const BYTES_MAX: usize = 2 << 20;

/// Refuses invalid labels; returns warnings about existing pods.
pub(super) fn judge(store: &Store, ctx: &Attributes<'_>, new: &Value, old: Option<&Value>) -> ApiResult<Vec<String>> {
    let (policy, wrong) = Policy::of(&new["metadata"]["labels"]);
    let before = old.map(|old| Policy::of(&old["metadata"]["labels"]));
    if !wrong.is_empty() && before.as_ref().is_none_or(|(_, before)| *before != wrong) {
        return Err(ApiError::invalid(&ctx.resource, meta::text(new, "name"), &wrong));
    }
    let Some((before, _)) = before else { return Ok(Vec::new()) };
    if !stricter(policy.enforce, before.enforce) {
        return Ok(Vec::new());
    }
    let namespace = meta::text(new, "name");
    let most = Most { items: PODS_MAX, bytes: BYTES_MAX };
    let Page { items, next } = store.list_at("pods", Some(namespace), store.revision(), None, most, &|_| true)?;
    let pods: Vec<&Value> = items.iter().map(|pod| pod.value()).collect();
    Ok(of_the_first(namespace, policy.enforce, &pods, next.is_some()))
}

/// Warnings about the pods that are looked at, and about there being more.
fn of_the_first(namespace: &str, enforce: Standard, pods: &[&Value], more: bool) -> Vec<String> {
    let mut warnings = warnings(namespace, enforce, pods.iter().copied());
    if more {
        let count = pods.len();
        let why = format!("new PodSecurity enforce level only checked against the first {count} existing pods");
        warnings.insert(0, why);
    }
    warnings
}

/// Whether pods that kept the old standard could violate the new one.
fn stricter(new: Standard, old: Standard) -> bool {
    let relaxed = new.version == old.version && new.level <= old.level;
    new.level != Level::Privileged && !relaxed
}

fn warnings<'a>(namespace: &str, enforce: Standard, pods: impl Iterator<Item = &'a Value>) -> Vec<String> {
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pod in pods {
        let reasons: Vec<String> = violations(enforce, pod).into_iter().map(|one| one.reason).collect();
        if !reasons.is_empty() {
            found.entry(reasons.join(", ")).or_default().push(meta::text(pod, "name"));
        }
    }
    if found.is_empty() {
        return Vec::new();
    }
    let mut lines: Vec<String> = found.iter().map(|(reasons, pods)| format!("{}: {reasons}", named(pods))).collect();
    lines.sort();
    let first =
        format!("existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{enforce}\"");
    lines.insert(0, first);
    lines
}

/// The first pod by name, and how many others.
fn named(pods: &[&str]) -> String {
    let first = pods.iter().min().copied().unwrap_or_default();
    match pods.len() {
        0 | 1 => first.to_owned(),
        2 => format!("{first} (and 1 other pod)"),
        n => format!("{first} (and {} other pods)", n - 1),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admission::pod_security::policy::Version;

    const fn standard(level: Level, minor: u32) -> Standard {
        Standard { level, version: Version(minor) }
    }

    #[test]
    fn stricter_standards_are_held_against_pods() {
        let (baseline, restricted) = (standard(Level::Baseline, 30), standard(Level::Restricted, 30));
        assert!(stricter(restricted, baseline));
        assert!(!stricter(baseline, restricted) && !stricter(baseline, baseline));
        assert!(stricter(baseline, standard(Level::Restricted, 29)), "another version may forbid something new");
        assert!(!stricter(standard(Level::Privileged, 31), baseline));
    }

    #[test]
    fn existing_pods_are_counted_by_violation() {
        let pod = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
        let host = json!({"hostNetwork": true, "hostPID": true});
        let pods = [
            pod("c", host.clone()),
            pod("a", host.clone()),
            pod("b", host),
            pod("d", json!({"containers": [{"name": "x", "securityContext": {"privileged": true}}]})),
            pod("e", json!({})),
        ];
        assert_eq!(
            warnings("n", standard(Level::Baseline, 36), pods.iter()),
            [
                "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:v1.36\"",
                "a (and 2 other pods): host namespaces",
                "d: privileged",
            ]
        );
        assert!(warnings("n", standard(Level::Privileged, 36), pods.iter()).is_empty());
    }

    #[test]
    fn pods_that_nobody_looked_at_are_told() {
        let pod = json!({"metadata": {"name": "a"}, "spec": {"hostPID": true}});
        let told = |more: bool| of_the_first("n", standard(Level::Baseline, 36), &[&pod; 500], more);
        assert_eq!(told(false).len(), 2, "all of them");
        let more = told(true);
        assert_eq!(more[0], "new PodSecurity enforce level only checked against the first 500 existing pods");
        assert_eq!(more[2], "a (and 499 other pods): host namespaces");
    }
}
