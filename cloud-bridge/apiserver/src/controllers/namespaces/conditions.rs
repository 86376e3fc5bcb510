//! Conditions about the remaining content of a namespace that is being deleted (K8s
//! pkg/controller/namespace/deletion/status_condition_utils.go). Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sampan_json::SetField;
use serde_json::{Value, json};

use apimachinery::meta;

/// Remaining content of a namespace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Remaining {
    /// How many objects, by plural and group of their resource.
    objects: BTreeMap<(String, String), u64>,
    /// How many objects each finalizer holds.
    finalizers: BTreeMap<String, u64>,
}

impl Remaining {
    /// Records that `count` objects of this resource are left, of which `seen` were examined.
    pub(super) fn add<'a>(&mut self, (plural, group): (&str, &str), count: u64, seen: impl Iterator<Item = &'a Value>) {
        if count > 0 {
            self.objects.insert((plural.to_owned(), group.to_owned()), count);
        }
        for finalizer in seen.flat_map(meta::finalizers) {
            *self.finalizers.entry(finalizer).or_default() += 1;
        }
    }

    fn objects(&self) -> Option<String> {
        let told: Vec<String> = self
            .objects
            .iter()
            .map(|((plural, group), count)| format!("{plural}.{group} has {count} resource instances"))
            .collect();
        (!told.is_empty()).then(|| format!("Some resources are remaining: {}", told.join(", ")))
    }

    fn finalizers(&self) -> Option<String> {
        let told: Vec<String> =
            self.finalizers.iter().map(|(name, count)| format!("{name} in {count} resource instances")).collect();
        let text = "Some content in the namespace has finalizers remaining";
        (!told.is_empty()).then(|| format!("{text}: {}", told.join(", ")))
    }
}

/// Sets the conditions of a namespace's status. A condition keeps the time of its last change.
pub(super) fn set(namespace: &mut Value, remaining: &Remaining, now: Timestamp) {
    let fine = |kind: &'static str, reason: &'static str, text: &str| (kind, "False", reason, text.to_owned());
    let wanted = [
        fine("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
        fine(
            "NamespaceDeletionGroupVersionParsingFailure",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        fine(
            "NamespaceDeletionContentFailure",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        match remaining.objects() {
            Some(text) => ("NamespaceContentRemaining", "True", "SomeResourcesRemain", text),
            None => fine("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
        },
        match remaining.finalizers() {
            Some(text) => ("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", text),
            None => {
                let text = "All content-preserving finalizers finished";
                fine("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", text)
            }
        },
    ];
    let mut conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for (kind, status, reason, message) in wanted {
        let mut condition = json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": meta::rfc3339(now),
        });
        match conditions.iter_mut().find(|one| one["type"] == kind) {
            Some(old) => {
                if old["status"] == status {
                    condition.set("lastTransitionTime", old["lastTransitionTime"].clone());
                }
                *old = condition;
            }
            None => conditions.push(condition),
        }
    }
    namespace.set_at(&["status", "conditions"], conditions.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn told(namespace: &Value, kind: &str) -> (String, String, String) {
        let conditions = namespace["status"]["conditions"].as_array().unwrap();
        let one = conditions.iter().find(|one| one["type"] == kind).unwrap();
        let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("message"), text("lastTransitionTime"))
    }

    #[test]
    fn what_is_left_is_told_and_times_are_those_of_changes() {
        let mut namespace =
            json!({"status": {"phase": "Terminating", "conditions": [{"type": "Own", "status": "True"}]}});
        let held = json!({"metadata": {"finalizers": ["a.b/c", "d.e/f"]}});
        let mut remaining = Remaining::default();
        let other = json!({"metadata": {"finalizers": ["a.b/c"]}});
        remaining.add(("pods", ""), 2, [&held, &other].into_iter());
        remaining.add(("leases", "coordination.k8s.io"), 0, std::iter::empty());
        set(&mut namespace, &remaining, at("2026-01-01T00:00:00Z"));
        let first = "2026-01-01T00:00:00Z".to_owned();
        let text = "Some resources are remaining: pods. has 2 resource instances";
        assert_eq!(told(&namespace, "NamespaceContentRemaining"), ("True".into(), text.into(), first.clone()));
        let text = "Some content in the namespace has finalizers remaining: a.b/c in 2 resource instances, d.e/f in 1 resource instances";
        assert_eq!(told(&namespace, "NamespaceFinalizersRemaining").1, text);
        assert_eq!(told(&namespace, "NamespaceDeletionContentFailure").0, "False");
        assert_eq!(namespace["status"]["conditions"].as_array().unwrap().len(), 6, "others' conditions stay");

        let mut fewer = Remaining::default();
        fewer.add(("pods", ""), 1, std::iter::once(&held));
        set(&mut namespace, &fewer, at("2026-01-01T00:01:00Z"));
        assert_eq!(told(&namespace, "NamespaceContentRemaining").2, first);
        set(&mut namespace, &Remaining::default(), at("2026-01-01T00:02:00Z"));
        let (status, text, time) = told(&namespace, "NamespaceContentRemaining");
        assert_eq!((status.as_str(), time.as_str()), ("False", "2026-01-01T00:02:00Z"));
        assert_eq!(text, "All content successfully removed");
    }
}
