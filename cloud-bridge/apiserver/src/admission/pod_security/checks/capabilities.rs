//! Capabilities that containers add and drop (policy/check_capabilities_baseline.go, check_capabilities_restricted.go).

use std::collections::BTreeSet;

use serde_json::Value;

use super::words::{Pod, Violation, containers, name, named, quoted};
use apimachinery::json::items;

const DEFAULT: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

fn listed<'a>(container: &'a Value, list: &str) -> impl Iterator<Item = &'a str> {
    items(&container["securityContext"]["capabilities"], list).iter().filter_map(Value::as_str)
}

/// Containers that add others than the allowed ones, in words.
fn added(pod: Pod<'_>, allowed: &[&str]) -> Option<String> {
    let mut adding = Vec::new();
    let mut forbidden = BTreeSet::new();
    for container in containers(pod) {
        let mut wrong = listed(container, "add").filter(|one| !allowed.contains(one)).peekable();
        if wrong.peek().is_some() {
            adding.push(name(container));
        }
        forbidden.extend(wrong);
    }
    let shown =
        || format!("{} must not include {} in securityContext.capabilities.add", named(&adding), quoted(&forbidden));
    (!adding.is_empty()).then(shown)
}

/// Allows only the capabilities that containers have by default.
pub(super) fn baseline(pod: Pod<'_>) -> Option<Violation> {
    Violation::new("non-default capabilities", added(pod, DEFAULT)?)
}

/// All are dropped, and one may be added.
pub(super) fn restricted(pod: Pod<'_>) -> Option<Violation> {
    let keeping: Vec<&str> =
        containers(pod).filter(|container| listed(container, "drop").all(|one| one != "ALL")).map(name).collect();
    let kept = (!keeping.is_empty())
        .then(|| format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", named(&keeping)));
    let wrong: Vec<String> = kept.into_iter().chain(added(pod, &["NET_BIND_SERVICE"])).collect();
    if wrong.is_empty() { None } else { Violation::new("unrestricted capabilities", wrong.join("; ")) }
}
