//! Jobs, stored as Kubernetes stores them. Nothing acts on them here: that is a controller's.

mod indexes;
mod policies;
mod selector;
pub(super) mod spec;
mod status;
mod table;
#[cfg(test)]
mod tests;
mod update;
mod validate;

use k8s_openapi::api::batch::v1;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::defaults::drop_zero;
use super::kind::{Kind, PLAIN, Selectable, keep_status, spec_changed};
use super::workload::{self, template};
use crate::codec::decode;
use crate::patch::merge_keys::{META, Type, object, patched, set};
use crate::resource::rules::Rules;
use apimachinery::json::{entries, flag, integer, items_mut, present, set_default, set_default_text};

pub(crate) static KIND: Kind = Kind {
    group: "batch",
    kind: "Job",
    plural: "jobs",
    singular: "job",
    categories: &["all"],
    namespaced: true,
    check: Some(decode::check::<v1::Job>),
    rules: Rules {
        orphan_dependents: true,
        template: Some("/spec/template"),
        orphan_warning: Some(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove \
             them or set propagationPolicy=Orphan to suppress this warning",
        ),
        ..Rules::SPEC_AND_STATUS
    },
    generation: Some(spec_changed),
    default,
    prepare_create: |job| {
        if !flag(&job["spec"], "manualSelector") {
            selector::generate(job);
        }
        take_labels(job);
        job.set("status", json!({}));
        template::drop_disabled(job);
    },
    prepare_update: |new, old| {
        keep_status(new, old);
        template::drop_disabled(new);
    },
    create: validate::create,
    update: update::update,
    warnings: |job| {
        let mut warnings = workload::name_warning(job);
        warnings.extend(spec::warnings("spec", &job["spec"]));
        warnings
    },
    status: Some(status::status),
    table: &table::TABLE,
    fields: &[Selectable::number("status.successful", "/status/succeeded")],
    keys: &KEYS,
    ..PLAIN
};

static KEYS: Type = Type { fields: &[META, object("spec", &workload::SPEC), object("status", &STATUS)] };
static STATUS: Type = Type { fields: &[patched("conditions", "type"), object("uncountedTerminatedPods", &UNCOUNTED)] };
static UNCOUNTED: Type = Type { fields: &[set("succeeded"), set("failed")] };

/// Follows SetDefaults_Job of pkg/apis/batch/v1/defaults.go.
fn default(job: &mut Value) {
    if let Some(status) = job.get_mut("status") {
        drop_zero(status, &["active", "succeeded", "failed", "completedIndexes"]);
    }
    let Some(spec) = job.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    if present(spec, "completions").is_none() && present(spec, "parallelism").is_none() {
        set_default(spec, "completions", 1);
    }
    set_default(spec, "parallelism", 1);
    let each = integer(spec, "backoffLimitPerIndex").is_some();
    set_default(spec, "backoffLimit", if each { i32::MAX } else { 6 });
    set_default(spec, "completionMode", "NonIndexed");
    set_default(spec, "suspend", false);
    let replacement = if present(spec, "podFailurePolicy").is_some() { "Failed" } else { "TerminatingOrFailed" };
    set_default(spec, "podReplacementPolicy", replacement);
    set_default(spec, "manualSelector", false);
    pods(spec);
    // A new Job's are complete only when its selector is made.
    if flag(&job["spec"], "manualSelector") || selector::is_generated(job) {
        take_labels(job);
    }
}

/// Common defaults of a Job and of a template of Jobs.
pub(super) fn pods(spec: &mut Value) {
    template::default(spec);
    let Some(policy) = spec.get_mut("podFailurePolicy") else { return };
    for rule in items_mut(policy, "rules") {
        for pattern in items_mut(rule, "onPodConditions") {
            set_default_text(pattern, "status", "True");
        }
    }
}

/// A Job without labels gets those of its template.
fn take_labels(job: &mut Value) {
    let labels = job["spec"]["template"]["metadata"]["labels"].clone();
    if labels.is_object() && entries(&job["metadata"], "labels").next().is_none() {
        job.set_at(&["metadata", "labels"], labels);
    }
}
