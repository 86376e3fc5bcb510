//! Common code of the checks: the containers of a pod, a violation, and Kubernetes' format for lists.

use serde_json::Value;

use apimachinery::json::{items, text};

/// A pod, or a template of pods: `metadata` and `spec`.
pub(super) type Pod<'a> = &'a Value;

/// A violation of a standard by a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::admission::pod_security) struct Violation {
    /// Short reason, such as "privileged".
    pub(in crate::admission::pod_security) reason: String,
    /// Which containers, volumes and values.
    pub(super) detail: String,
}

impl Violation {
    pub(super) fn new(reason: impl Into<String>, detail: String) -> Option<Self> {
        Some(Self { reason: reason.into(), detail })
    }
}

/// Every container: init containers first, ephemeral ones last.
pub(super) fn containers(pod: Pod<'_>) -> impl Iterator<Item = &Value> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    lists.into_iter().flat_map(move |list| items(&pod["spec"], list))
}

pub(super) fn name(container: &Value) -> &str {
    text(container, "name")
}

/// Names of the containers for which something is so.
pub(super) fn containers_that(pod: Pod<'_>, is_so: impl FnMut(&&Value) -> bool) -> Vec<&str> {
    containers(pod).filter(is_so).map(name).collect()
}

/// `"a", "b"`.
pub(super) fn quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect::<Vec<_>>().join(", ")
}

/// A word, with an s where there is not just one.
pub(super) fn plural(word: &str, count: usize) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

/// `container "a"`, `containers "a", "b"`.
pub(super) fn named(containers: &[&str]) -> String {
    format!("{} {}", plural("container", containers.len()), quoted(containers))
}

/// Names what sets a field: the pod, containers or both; `None` if neither does.
pub(super) fn setters(pod: bool, containers: &[&str]) -> Option<String> {
    let containers = (!containers.is_empty()).then(|| named(containers));
    match (pod, containers) {
        (false, containers) => containers,
        (true, None) => Some("pod".to_owned()),
        (true, Some(containers)) => Some(format!("pod and {containers}")),
    }
}
