//! The pods of a Job: their indexes, and how they are made of its template (K8s pkg/controller/job/indexed_job_utils.go).

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, PodTemplateSpec};
use serde_json::Value;

use super::context::{Context, Progress};
use super::marks::{FAILURES, Failures, IGNORED_FAILURES, INDEX, TRACKING, failures_of_index};
use super::policy::{self, Verdict};
use crate::workloads::claim::controller_reference;
use crate::workloads::limit::limited;
use crate::workloads::plan::Action;
use crate::workloads::pod::Pod;
use crate::workloads::template;
use crate::workloads::world::Kind;

/// A prefix of a generated name has at most so many letters (K8s `MaxGeneratedNameLength`).
const PREFIX_MAX: usize = 58;

/// Makes pods without an index.
pub(super) fn create(context: &Context<'_>, count: usize) -> Vec<Action> {
    let prefix = template::prefix(name(context));
    let pod = Arc::new(pod(context, &tracked(context), &prefix));
    (0..count).map(|_| create_one(context, Arc::clone(&pod))).collect()
}

/// Makes a pod for each of the indexes, as far as one plan goes.
pub(super) fn create_indexed(context: &Context<'_>, progress: &Progress<'_>, indexes: &[i32]) -> Vec<Action> {
    let mut base = tracked(context);
    if let Some(spec) = &mut base.spec {
        spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()).for_each(add_index_variable);
    }
    let one = |index: &i32| {
        let mut template = base.clone();
        let metadata = template.metadata.get_or_insert_default();
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
        if let Some(spec) = &mut template.spec {
            spec.hostname = Some(format!("{}-{index}", name(context)));
        }
        create_one(context, pod(context, &template, &prefix(name(context), *index)))
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

/// The template of pods that stay until they are counted.
fn tracked(context: &Context<'_>) -> PodTemplateSpec {
    let mut template = context.spec.template.clone();
    let finalizers = template.metadata.get_or_insert_default().finalizers.get_or_insert_default();
    if !finalizers.iter().any(|one| one == TRACKING) {
        finalizers.push(TRACKING.to_owned());
    }
    template
}

fn pod(context: &Context<'_>, template: &PodTemplateSpec, prefix: &str) -> Value {
    template::pod(template, prefix, &controller_reference(Kind::Job, &context.job.metadata))
}

fn create_one(context: &Context<'_>, pod: impl Into<Arc<Value>>) -> Action {
    context.teller().create_pod(context.job.metadata.namespace.as_deref().unwrap_or_default(), pod)
}

fn add_index_variable(container: &mut Container) {
    const NAME: &str = "JOB_COMPLETION_INDEX";
    let variables = container.env.get_or_insert_default();
    if variables.iter().all(|one| one.name != NAME) {
        let field = ObjectFieldSelector { field_path: format!("metadata.labels['{INDEX}']"), api_version: None };
        let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
        variables.push(EnvVar { name: NAME.to_owned(), value: None, value_from: Some(source) });
    }
}

fn prefix(job: &str, index: i32) -> String {
    let end = format!("-{index}-");
    let start: String = job.chars().take(PREFIX_MAX.saturating_sub(end.len())).collect();
    format!("{start}{end}")
}
