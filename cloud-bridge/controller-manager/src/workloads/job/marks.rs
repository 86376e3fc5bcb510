//! What Jobs write on their pods: the finalizer until they are counted, the index, and how often the index failed (K8s
//! pkg/controller/job/tracking_utils.go, indexed_job_utils.go).

use serde_json::json;

use crate::workloads::annotations::{FAILURES, IGNORED_FAILURES, INDEX};
use crate::workloads::plan::{Action, Write};
use crate::workloads::pod::Pod;
use crate::workloads::store::{key_of, uid};
use crate::workloads::world::Kind;

/// Pods have it until they are counted.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// A pod that has the finalizer of Jobs.
pub(crate) fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|one| one == TRACKING)
}

/// Removes the finalizer of a pod, without affecting concurrent changes.
pub(super) fn untrack(pod: &Pod) -> Action {
    let meta = &pod.metadata;
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING], "uid": uid(meta)}});
    Action {
        kind: Kind::Pod,
        key: key_of(meta),
        write: Write::Strategic { subresource: None, patch },
        check: None,
        done: None,
        failed: None,
    }
}

/// Removes the finalizer of a pod that must not count, if the pod is unchanged: it may just have succeeded.
pub(super) fn untrack_active(pod: &Pod) -> Action {
    let mut action = untrack(pod);
    if let Write::Strategic { patch, .. } = &mut action.write
        && let Some(metadata) = apimachinery::json::object_mut(patch, "metadata")
    {
        metadata.insert("resourceVersion".to_owned(), pod.metadata.resource_version.clone().into());
    }
    action
}

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// The index of a pod, if it has one.
pub(super) fn index(pod: &Pod) -> Option<i32> {
    annotation(pod, INDEX)?.parse().ok().filter(|index| *index >= 0)
}

/// How many pods of an index had failed when this one was made.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failures {
    pub(super) counted: i32,
    pub(super) ignored: i32,
}

impl Failures {
    pub(super) fn all(self) -> i32 {
        self.counted.saturating_add(self.ignored)
    }
}

pub(super) fn failures_of_index(pod: &Pod) -> Failures {
    let number = |name| annotation(pod, name).and_then(|text| text.parse().ok()).filter(|count: &i32| *count >= 0);
    Failures { counted: number(FAILURES).unwrap_or_default(), ignored: number(IGNORED_FAILURES).unwrap_or_default() }
}
