//! ReplicaSets, stored as Kubernetes stores them. Nothing acts on them here: that is a controller's.

mod table;
#[cfg(test)]
mod tests;
mod validate;

use std::borrow::Cow;

use k8s_openapi::api::apps::v1;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::defaults::drop_zero;
use super::kind::{Kind, PLAIN, keep_status, spec_changed};
use super::workload::{self, template};
use crate::resource::rules::Rules;
use crate::resource::strategy::ScalePaths;
use apimachinery::json::set_default;

pub(crate) static KIND: Kind = Kind {
    group: "apps",
    kind: "ReplicaSet",
    plural: "replicasets",
    singular: "replicaset",
    short_names: &["rs"],
    categories: &["all"],
    namespaced: true,
    check: Some(workload::check::<v1::ReplicaSet>),
    rules: Rules { template: Some("/spec/template"), ..Rules::SPEC_AND_STATUS },
    generation: Some(spec_changed),
    default,
    prepare_create: |set| {
        set.set("status", json!({"replicas": 0}));
        template::drop_disabled(set);
    },
    prepare_update: |new, old| {
        keep_status(new, old);
        template::drop_disabled(new);
    },
    create: validate::create,
    update: validate::update,
    warnings: workload::name_warning,
    status: Some(validate::status),
    scale: Some(ScalePaths {
        spec_replicas: Cow::Borrowed(".spec.replicas"),
        status_replicas: Cow::Borrowed(".status.replicas"),
        selector: Cow::Borrowed(".spec.selector"),
    }),
    table: &table::TABLE,
    keys: &workload::KEYS,
    ..PLAIN
};

/// Follows SetDefaults_ReplicaSet of pkg/apis/apps/v1/defaults.go.
fn default(set: &mut Value) {
    if let Some(status) = set.get_mut("status") {
        set_default(status, "replicas", 0);
        drop_zero(status, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"]);
    }
    let Some(spec) = set.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    drop_zero(spec, &["minReadySeconds"]);
    set_default(spec, "replicas", 1);
    template::default(spec);
}
