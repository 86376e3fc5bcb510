//! Deployments, stored as Kubernetes stores them. Nothing acts on them here: that is a controller's.

mod table;
mod template;
#[cfg(test)]
mod tests;
mod validate;

use std::borrow::Cow;

use edge_protocol::json::SetField;
use k8s_openapi::api::apps::v1;
use serde_json::{Value, json};

use super::defaults::drop_zero;
use super::kind::{Kind, PLAIN, keep_status, spec_changed};
use crate::codec::decode;
use crate::patch::merge_keys::{CONDITIONS, META, Type, object};
use crate::resource::rules::Rules;
use crate::resource::strategy::ScalePaths;
use apimachinery::json::{object_mut, set_default, set_default_text, text};
use apimachinery::names;

pub(crate) static KIND: Kind = Kind {
    group: "apps",
    kind: "Deployment",
    plural: "deployments",
    singular: "deployment",
    short_names: &["deploy"],
    categories: &["all"],
    namespaced: true,
    check: Some(decode::check::<v1::Deployment>),
    rules: Rules::SPEC_AND_STATUS,
    // Its ReplicaSets take over the annotations.
    generation: Some(|new, old| {
        spec_changed(new, old) || new["metadata"]["annotations"] != old["metadata"]["annotations"]
    }),
    default,
    prepare_create: |deployment| deployment.set("status", json!({})),
    prepare_update: keep_status,
    create: validate::create,
    update: validate::update,
    warnings,
    status: Some(validate::status),
    scale: Some(ScalePaths {
        spec_replicas: Cow::Borrowed(".spec.replicas"),
        status_replicas: Cow::Borrowed(".status.replicas"),
        selector: Cow::Borrowed(".spec.selector"),
    }),
    columns: table::COLUMNS,
    row: table::row,
    keys: &KEYS,
    ..PLAIN
};

static KEYS: Type = Type { fields: &[META, object("spec", &SPEC), object("status", &CONDITIONS)] };
static SPEC: Type = Type { fields: &[object("template", &template::KEYS)] };

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
    object_mut(spec, "template");
    if let Some(pods) = spec.get_mut("template") {
        template::default(pods);
    }
}

fn warnings(deployment: &Value) -> Vec<String> {
    let wrong = names::dns_label(text(&deployment["metadata"], "name"));
    if wrong.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is \
         recommended: [{}]",
        wrong.join(" ")
    )]
}
