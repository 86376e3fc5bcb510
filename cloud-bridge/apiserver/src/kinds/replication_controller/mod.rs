//! ReplicationControllers, stored as Kubernetes stores them. Nothing acts on them here: that is a controller's.

#[cfg(test)]
mod tests;
mod validate;

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::columns::{AGE, NAME, Table, age, name};
use super::defaults::drop_zero;
use super::kind::{Kind, PLAIN, Selectable, keep_status, spec_changed};
use super::workload::table::{CONTAINERS, IMAGES, SELECTOR, containers, labels, number};
use super::workload::{self, template};
use crate::codec::decode;
use crate::resource::rules::Rules;
use crate::resource::strategy::ScalePaths;
use apimachinery::json::{entries, present, set_default};

pub(crate) static KIND: Kind = Kind {
    kind: "ReplicationController",
    plural: "replicationcontrollers",
    singular: "replicationcontroller",
    short_names: &["rc"],
    categories: &["all"],
    namespaced: true,
    check: Some(decode::check::<v1::ReplicationController>),
    rules: Rules { orphan_dependents: true, template: Some("/spec/template"), ..Rules::SPEC_AND_STATUS },
    generation: Some(spec_changed),
    default,
    prepare_create: |controller| {
        controller.set("status", json!({"replicas": 0}));
        template::drop_disabled(controller);
    },
    prepare_update: |new, old| {
        keep_status(new, old);
        template::drop_disabled(new);
    },
    create: validate::create,
    update: |new, _| validate::create(new),
    warnings: workload::name_warning,
    status: Some(validate::status),
    scale: Some(ScalePaths {
        spec_replicas: Cow::Borrowed(".spec.replicas"),
        status_replicas: Cow::Borrowed(".status.replicas"),
        selector: Cow::Borrowed(".spec.selector"),
    }),
    table: &Table {
        columns: [
            NAME,
            ("Desired", "integer", 0, "How many pods there are to be."),
            ("Current", "integer", 0, "How many pods there are."),
            ("Ready", "integer", 0, "How many of them are ready."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        row,
    },
    fields: &[Selectable::number("status.replicas", "/status/replicas")],
    keys: &workload::KEYS,
    ..PLAIN
};

/// Follows SetDefaults_ReplicationController of pkg/apis/core/v1/defaults.go: missing labels and the selector are
/// copied from the labels of its template.
fn default(controller: &mut Value) {
    if let Some(status) = controller.get_mut("status") {
        set_default(status, "replicas", 0);
        drop_zero(status, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"]);
    }
    let labels = controller["spec"]["template"]["metadata"]["labels"].clone();
    if labels.is_object() {
        for (path, holder) in [(["spec", "selector"], "selector"), (["metadata", "labels"], "labels")] {
            if entries(&controller[path[0]], holder).next().is_none() {
                controller.set_at(&path, labels.clone());
            }
        }
    }
    let Some(spec) = controller.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    drop_zero(spec, &["minReadySeconds", "selector"]);
    set_default(spec, "replicas", 1);
    if present(spec, "template").is_some() {
        template::default(spec);
    }
}

fn row(controller: &Value, now: Timestamp) -> [Value; 8] {
    let (spec, status) = (&controller["spec"], &controller["status"]);
    let [names, images] = containers(&spec["template"]);
    [
        name(controller),
        number(spec, "replicas"),
        number(status, "replicas"),
        number(status, "readyReplicas"),
        age(controller, now),
        names,
        images,
        labels(spec, "selector"),
    ]
}
