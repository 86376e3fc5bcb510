//! Users of containers (policy/check_runAsNonRoot.go, check_runAsUser.go).

use serde_json::Value;

use super::words::{Pod, Violation, containers_that, named, setters};

/// Pod or container promises that it is not root.
pub(super) fn non_root(pod: Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let said = |object: &Value| object["securityContext"]["runAsNonRoot"].as_bool();
    let of_pod = said(&pod["spec"]);
    let root = containers_that(pod, |container| said(container) == Some(false));
    if let Some(setters) = setters(of_pod == Some(false), &root) {
        return Violation::new(REASON, format!("{setters} must not set securityContext.runAsNonRoot=false"));
    }
    let silent = containers_that(pod, |container| said(container).is_none());
    if of_pod == Some(true) || silent.is_empty() {
        return None;
    }
    Violation::new(REASON, format!("pod or {} must set securityContext.runAsNonRoot=true", named(&silent)))
}

/// Neither asks for root by number.
pub(super) fn user(pod: Pod<'_>) -> Option<Violation> {
    let root = |object: &Value| object["securityContext"]["runAsUser"] == 0;
    let setters = setters(root(&pod["spec"]), &containers_that(pod, |container| root(container)))?;
    Violation::new("runAsUser=0", format!("{setters} must not set runAsUser=0"))
}
