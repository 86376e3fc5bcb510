//! The pods of a Job: their indexes, and their creation from its template (K8s
//! pkg/controller/job/indexed_job_utils.go).

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use super::context::{Context, Progress};
use super::marks::{Failures, TRACKING, failures_of_index};
use super::policy::{self, Verdict};
use crate::workloads::annotations::{FAILURES, IGNORED_FAILURES, INDEX};
use crate::workloads::body::{Body, Fields};
use crate::workloads::claim::controller_reference;
use crate::workloads::limit::limited;
use crate::workloads::plan::Action;
use crate::workloads::pod::Pod;
use crate::workloads::template::{self, Template};
use crate::workloads::world::Kind;

/// Maximum length of the prefix of a generated name (K8s `MaxGeneratedNameLength`).
const PREFIX_MAX: usize = 58;

/// Creates pods without an index, or reads the Job first.
pub(super) fn create(context: &Context<'_>, count: usize) -> Vec<Action> {
    let Some(template) = context.template else { return vec![Action::read(Kind::Job, &context.job.metadata)] };
    let prefix = template::prefix(name(context));
    let names = (None, prefix.as_str());
    let pod = template::pod(names, tracked(template), json!({}), &template.spec, &owner(context));
    limited((0..count).map(|_| create_one(context, pod.clone())))
}

/// Creates a pod for each of the indexes, up to the limit of a plan, or reads the Job first. They differ only in their
/// names.
pub(super) fn create_indexed(context: &Context<'_>, progress: &Progress<'_>, indexes: &[i32]) -> Vec<Action> {
    if indexes.is_empty() {
        return Vec::new();
    }
    let Some(template) = context.template else { return vec![Action::read(Kind::Job, &context.job.metadata)] };
    let shared = Arc::new(with_index_variable(&template.spec));
    let base = tracked(template);
    let owner = owner(context);
    let one = |index: &i32| {
        let mut metadata = base.clone();
        metadata.labels.get_or_insert_default().insert(INDEX.to_owned(), index.to_string());
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(INDEX.to_owned(), index.to_string());
        if context.spec.backoff_limit_per_index.is_some() {
            let failures = failures_after(context, progress.last.get(index).copied());
            annotations.insert(FAILURES.to_owned(), failures.counted.to_string());
            if failures.ignored > 0 {
                annotations.insert(IGNORED_FAILURES.to_owned(), failures.ignored.to_string());
            }
        }
        let own = json!({"hostname": format!("{}-{index}", name(context))});
        let prefix = prefix(name(context), *index);
        create_one(context, template::pod((None, prefix.as_str()), metadata, own, &shared, &owner))
    };
    limited(indexes.iter().map(one))
}

/// The failures of an index after the end of its last pod.
fn failures_after(context: &Context<'_>, last: Option<&Pod>) -> Failures {
    let Some(last) = last else { return Failures::default() };
    let mut failures = failures_of_index(last);
    let count = match policy::of_failed(context.spec, last) {
        Verdict::Ignored => &mut failures.ignored,
        _ => &mut failures.counted,
    };
    *count = count.saturating_add(1);
    failures
}

fn name<'a>(context: &Context<'a>) -> &'a str {
    context.job.metadata.name.as_deref().unwrap_or_default()
}

/// The metadata of pods that stay until they are counted.
fn tracked(template: &Template) -> ObjectMeta {
    let mut metadata = template.metadata.clone();
    let finalizers = metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|one| one == TRACKING) {
        finalizers.push(TRACKING.to_owned());
    }
    metadata
}

fn owner(context: &Context<'_>) -> OwnerReference {
    controller_reference(Kind::Job, &context.job.metadata)
}

fn create_one(context: &Context<'_>, pod: Body) -> Action {
    context.teller().create_pod(context.job.metadata.namespace.as_deref().unwrap_or_default(), pod)
}

/// The spec of pods whose containers get their index as a variable.
fn with_index_variable(spec: &Fields) -> Fields {
    let mut with = spec.clone();
    for field in ["containers", "initContainers"] {
        let mut containers = spec.get(field);
        if let Some(list) = containers.as_array_mut() {
            list.iter_mut().for_each(add_index_variable);
            with = with.with(field, &containers);
        }
    }
    with
}

fn add_index_variable(container: &mut Value) {
    const NAME: &str = "JOB_COMPLETION_INDEX";
    let Some(variables) = container.as_object_mut().map(|fields| fields.entry("env").or_insert(Value::Null)) else {
        return;
    };
    if variables.is_null() {
        *variables = json!([]);
    }
    let Some(variables) = variables.as_array_mut() else { return };
    if variables.iter().all(|one| one["name"] != NAME) {
        let field = format!("metadata.labels['{INDEX}']");
        variables.push(json!({"name": NAME, "valueFrom": {"fieldRef": {"fieldPath": field}}}));
    }
}

fn prefix(job: &str, index: i32) -> String {
    let end = format!("-{index}-");
    let start: String = job.chars().take(PREFIX_MAX.saturating_sub(end.len())).collect();
    format!("{start}{end}")
}
