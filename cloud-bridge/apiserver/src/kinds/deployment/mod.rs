//! Deployments, stored as Kubernetes stores them. Nothing acts on them here: that is a controller's.

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
use apimachinery::json::{object_mut, set_default, set_default_text, text};

pub(crate) static KIND: Kind = Kind {
    group: "apps",
    kind: "Deployment",
    plural: "deployments",
    singular: "deployment",
    short_names: &["deploy"],
    categories: &["all"],
    namespaced: true,
    check: Some(workload::check::<v1::Deployment>),
    rules: Rules { template: Some("/spec/template"), ..Rules::SPEC_AND_STATUS },
    // Its ReplicaSets copy the annotations.
    generation: Some(|new, old| {
        spec_changed(new, old) || new["metadata"]["annotations"] != old["metadata"]["annotations"]
    }),
    default,
    prepare_create: |deployment| {
        deployment.set("status", json!({}));
        template::drop_disabled(deployment);
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

/// Follows SetDefaults_Deployment of pkg/apis/apps/v1/defaults.go.
fn default(deployment: &mut Value) {
    if let Some(status) = deployment.get_mut("status") {
        let counts =
            ["observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas"].as_slice();
        drop_zero(status, counts);
        drop_zero(status, &["unavailableReplicas"]);
    }
    let Some(spec) = deployment.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    drop_zero(spec, &["minReadySeconds", "paused"]);
    set_default(spec, "replicas", 1);
    set_default(spec, "revisionHistoryLimit", 10);
    set_default(spec, "progressDeadlineSeconds", 600);
    object_mut(spec, "strategy");
    if let Some(strategy) = spec.get_mut("strategy") {
        set_default_text(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate" {
            object_mut(strategy, "rollingUpdate");
            if let Some(rolling) = strategy.get_mut("rollingUpdate") {
                set_default(rolling, "maxUnavailable", "25%");
                set_default(rolling, "maxSurge", "25%");
            }
        }
    }
    template::default(spec);
}
