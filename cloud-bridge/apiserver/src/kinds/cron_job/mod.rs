//! CronJobs, stored as Kubernetes stores them. Nothing acts on them here: that is a controller's.

#[cfg(test)]
mod tests;
mod validate;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::columns::{AGE, NAME, Table, age, name, since};
use super::job;
use super::kind::{Kind, PLAIN, any_status, keep_status, spec_changed};
use super::workload::table::{CONTAINERS, IMAGES, SELECTOR, containers, selector};
use super::workload::{self, template};
use crate::codec::decode;
use crate::patch::merge_keys::{META, Type, object};
use crate::resource::rules::Rules;
use apimachinery::json::{flag, items, object_mut, present, set_default, set_default_text, text};

pub(crate) static KIND: Kind = Kind {
    group: "batch",
    kind: "CronJob",
    plural: "cronjobs",
    singular: "cronjob",
    short_names: &["cj"],
    categories: &["all"],
    namespaced: true,
    check: Some(decode::check::<v1::CronJob>),
    rules: Rules { template: Some("/spec/jobTemplate/spec/template"), ..Rules::SPEC_AND_STATUS },
    generation: Some(spec_changed),
    default,
    prepare_create: |cron| {
        cron.set("status", json!({}));
        drop_disabled(cron);
    },
    prepare_update: |new, old| {
        keep_status(new, old);
        drop_disabled(new);
    },
    create: validate::create,
    update: validate::update,
    warnings: |cron| {
        let mut warnings = workload::name_warning(cron);
        warnings.extend(job::spec::warnings("spec.jobTemplate.spec", &cron["spec"]["jobTemplate"]["spec"]));
        warnings
    },
    status: Some(any_status),
    table: &Table {
        columns: [
            NAME,
            ("Schedule", "string", 0, "When a Job is made."),
            ("Timezone", "string", 0, "Where it is that time."),
            ("Suspend", "boolean", 0, "Whether no Jobs are made for now."),
            ("Active", "integer", 0, "How many of its Jobs run."),
            ("Last Schedule", "string", 0, "Time since a Job was last due."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        row,
    },
    keys: &KEYS,
    ..PLAIN
};

static KEYS: Type = Type { fields: &[META, object("spec", &SPEC)] };
static SPEC: Type = Type { fields: &[object("jobTemplate", &JOB)] };
static JOB: Type = Type { fields: &[META, object("spec", &workload::SPEC)] };

/// Follows SetDefaults_CronJob of pkg/apis/batch/v1/defaults.go. Defaults of a Job come with the Job.
fn default(cron: &mut Value) {
    let Some(spec) = cron.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    set_default_text(spec, "concurrencyPolicy", "Allow");
    set_default(spec, "suspend", false);
    set_default(spec, "successfulJobsHistoryLimit", 3);
    set_default(spec, "failedJobsHistoryLimit", 1);
    object_mut(spec, "jobTemplate");
    let Some(job) = spec.get_mut("jobTemplate") else { return };
    object_mut(job, "metadata");
    object_mut(job, "spec");
    if let Some(spec) = job.get_mut("spec").filter(|spec| spec.is_object()) {
        job::pods(spec);
    }
}

fn drop_disabled(cron: &mut Value) {
    if let Some(job) = cron.at_mut(&["spec", "jobTemplate"]) {
        template::drop_disabled(job);
    }
}

fn row(cron: &Value, now: Timestamp) -> [Value; 10] {
    let (spec, status) = (&cron["spec"], &cron["status"]);
    let job = &spec["jobTemplate"]["spec"];
    let [names, images] = containers(&job["template"]);
    let last = present(status, "lastScheduleTime").and_then(Value::as_str);
    let suspended = if flag(spec, "suspend") { "True" } else { "False" };
    [
        name(cron),
        text(spec, "schedule").into(),
        present(spec, "timeZone").cloned().unwrap_or_else(|| "<none>".into()),
        suspended.into(),
        json!(items(status, "active").len()),
        last.map_or_else(|| "<none>".to_owned(), |last| since(last, now)).into(),
        age(cron, now),
        names,
        images,
        selector(&job["selector"]),
    ]
}
