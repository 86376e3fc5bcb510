//! AppArmor and seccomp profiles (policy/check_appArmorProfile.go, check_seccompProfile_baseline.go,
//! check_seccompProfile_restricted.go).

use std::collections::BTreeSet;

use serde_json::Value;

use super::words::{Pod, Violation, containers, containers_that, name, named, plural, quoted, setters};
use apimachinery::json::{present, text, text_entries};

/// Types that are allowed, of both kinds of profile.
const TYPES: [&str; 2] = ["RuntimeDefault", "Localhost"];

/// Type of the profile in a security context; `None` without a profile.
fn profile<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    present(&object["securityContext"], field).map(|profile| text(profile, "type"))
}

/// Returns the pod and containers that set a forbidden type, in words, and the types they set.
fn explicit<'a>(pod: Pod<'a>, field: &str) -> (Option<String>, BTreeSet<&'a str>) {
    let wrong = |object: &'a Value| profile(object, field).filter(|kind| !TYPES.contains(kind));
    let of_pod = wrong(&pod["spec"]);
    let names: Vec<&str> = containers(pod).filter(|container| wrong(container).is_some()).map(name).collect();
    let values = containers(pod).filter_map(wrong).chain(of_pod).collect();
    (setters(of_pod.is_some(), &names), values)
}

pub(super) fn app_armor(pod: Pod<'_>) -> Option<Violation> {
    const BETA: &str = "container.apparmor.security.beta.kubernetes.io/";
    let (setters, values) = explicit(pod, "appArmorProfile");
    let allowed = |value: &str| value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
    let annotations = text_entries(&pod["metadata"], "annotations");
    let annotations: BTreeSet<String> = annotations
        .filter(|(key, value)| key.starts_with(BETA) && !allowed(value))
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    let annotated = (!annotations.is_empty()).then(|| plural("annotation", annotations.len()));
    let setters: Vec<String> = setters.into_iter().chain(annotated).collect();
    if setters.is_empty() {
        return None;
    }
    let values: Vec<String> = values.into_iter().map(str::to_owned).chain(annotations).collect();
    Violation::new(
        plural("forbidden AppArmor profile", values.len()),
        format!("{} must not set AppArmor profile type to {}", setters.join(" and "), quoted(values)),
    )
}

/// Before the field there were annotations.
pub(super) fn seccomp_annotations(pod: Pod<'_>) -> Option<Violation> {
    const OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    let keys = containers(pod).map(|container| format!("{OF_CONTAINER}{}", name(container)));
    let set = keys.chain([OF_POD.to_owned()]).filter_map(|key| {
        let value = pod["metadata"]["annotations"][&key].as_str()?;
        let allowed = matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
        (!allowed).then(|| format!("{key}={value:?}"))
    });
    let wrong: BTreeSet<String> = set.collect();
    if wrong.is_empty() {
        return None;
    }
    let shown = wrong.iter().cloned().collect::<Vec<_>>().join(", ");
    Violation::new("seccompProfile", format!("forbidden {} {shown}", plural("annotation", wrong.len())))
}

pub(super) fn seccomp(pod: Pod<'_>) -> Option<Violation> {
    let (setters, values) = explicit(pod, "seccompProfile");
    let detail = format!("{} must not set securityContext.seccompProfile.type to {}", setters?, quoted(values));
    Violation::new("seccompProfile", detail)
}

/// A profile is needed, of the pod or of each container.
pub(super) fn seccomp_required(pod: Pod<'_>) -> Option<Violation> {
    if let Some(wrong) = seccomp(pod) {
        return Some(wrong);
    }
    if profile(&pod["spec"], "seccompProfile").is_some() {
        return None;
    }
    let without = containers_that(pod, |container| profile(container, "seccompProfile").is_none());
    if without.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        named(&without)
    );
    Violation::new("seccompProfile", detail)
}
