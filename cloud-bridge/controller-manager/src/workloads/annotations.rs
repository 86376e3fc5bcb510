//! The annotations that controllers read. An object may have 256 KiB of others, and pods have those of their template: of them
//! nothing is kept.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub(super) use apimachinery::well_known::MIRROR_ANNOTATION as MIRROR;
/// Cost of deleting a pod, set by its owner.
pub(super) const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The annotation, and the label, with the index of a pod.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub(super) const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
pub(super) const IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// The number of the template of a DaemonSet.
pub(super) const GENERATION: &str = "deprecated.daemonset.template.generation";
/// On a CronJob whose schedule was changed: when, so that no time before that gets a Job.
pub(super) const EDITED: &str = "sampan.dev/schedule-changed";
/// On a DaemonSet, `true`: silent nodes do not block a roll-out. Their pods are updated when the nodes are back.
pub(super) const IGNORE_OFFLINE: &str = "sampan.dev/ignore-offline";

pub(super) const OF_PODS: &[&str] = &[MIRROR, DELETION_COST, INDEX, FAILURES, IGNORED_FAILURES];
pub(super) const OF_DAEMON_SETS: &[&str] = &[GENERATION, IGNORE_OFFLINE];

/// Maximum length of a value that is used, in bytes: numbers, times and a uid.
const VALUE_MAX: usize = 128;

/// Removes all annotations but these.
pub(super) fn keep(meta: &mut ObjectMeta, names: &[&str]) {
    let Some(mut all) = meta.annotations.take() else { return };
    all.retain(|name, value| names.contains(&name.as_str()) && value.len() <= VALUE_MAX);
    meta.annotations = (!all.is_empty()).then_some(all);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_that_are_not_read_are_not_kept() {
        let named = |names: &[&str]| {
            let all = names.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect();
            ObjectMeta { annotations: Some(all), ..ObjectMeta::default() }
        };
        let mut meta = named(&[DELETION_COST, "kubectl.kubernetes.io/last-applied-configuration", "a"]);
        keep(&mut meta, OF_PODS);
        assert_eq!(meta, named(&[DELETION_COST]));
        meta.annotations.as_mut().unwrap().insert(INDEX.to_owned(), "x".repeat(200_000));
        keep(&mut meta, OF_PODS);
        assert_eq!(meta, named(&[DELETION_COST]));
        keep(&mut meta, &[]);
        assert_eq!(meta, ObjectMeta::default());
    }
}
