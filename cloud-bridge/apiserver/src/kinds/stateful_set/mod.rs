//! StatefulSets, stored as Kubernetes stores them. Nothing acts on them here: that is a controller's.

mod claims;
mod table;
#[cfg(test)]
mod tests;
mod validate;

use std::borrow::Cow;

use sampan_json::SetField;
use serde_json::{Value, json};

use super::defaults::drop_zero;
use super::kind::{Kind, PLAIN, keep_status, spec_changed};
use super::volume;
use super::workload::{self, template};
use crate::resource::rules::Rules;
use crate::resource::strategy::ScalePaths;
use apimachinery::json::{integer, items, object_mut, remove, set_default, set_default_text, text};
use apimachinery::names;

pub(crate) static KIND: Kind = Kind {
    group: "apps",
    kind: "StatefulSet",
    plural: "statefulsets",
    singular: "statefulset",
    short_names: &["sts"],
    categories: &["all"],
    namespaced: true,
    check: Some(claims::check),
    // Its pods use the name in their host names.
    rules: Rules { name: names::dns_label, template: Some("/spec/template"), ..Rules::SPEC_AND_STATUS },
    generation: Some(spec_changed),
    default,
    prepare_create: |set| {
        set.set("status", json!({"replicas": 0, "availableReplicas": 0}));
        drop_disabled(set);
    },
    prepare_update: |new, old| {
        keep_status(new, old);
        drop_disabled(new);
    },
    create: validate::create,
    update: validate::update,
    warnings,
    update_warnings: warnings,
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

/// Follows SetDefaults_StatefulSet of pkg/apis/apps/v1/defaults.go.
fn default(set: &mut Value) {
    if let Some(status) = set.get_mut("status") {
        set_default(status, "replicas", 0);
        set_default(status, "availableReplicas", 0);
        let dropped = ["readyReplicas", "currentReplicas", "updatedReplicas", "currentRevision", "updateRevision"];
        drop_zero(status, &dropped);
    }
    let Some(spec) = set.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    drop_zero(spec, &["minReadySeconds"]);
    set_default(spec, "serviceName", "");
    set_default_text(spec, "podManagementPolicy", "OrderedReady");
    object_mut(spec, "updateStrategy");
    if let Some(strategy) = spec.get_mut("updateStrategy") {
        update_strategy(strategy);
    }
    object_mut(spec, "persistentVolumeClaimRetentionPolicy");
    if let Some(policy) = spec.get_mut("persistentVolumeClaimRetentionPolicy") {
        set_default_text(policy, "whenDeleted", "Retain");
        set_default_text(policy, "whenScaled", "Retain");
    }
    set_default(spec, "replicas", 1);
    set_default(spec, "revisionHistoryLimit", 10);
    template::default(spec);
    claims::default(spec);
}

fn update_strategy(strategy: &mut Value) {
    if text(strategy, "type").is_empty() {
        set_default_text(strategy, "type", "RollingUpdate");
        object_mut(strategy, "rollingUpdate");
    }
    if text(strategy, "type") == "RollingUpdate"
        && let Some(rolling) = strategy.get_mut("rollingUpdate").filter(|rolling| rolling.is_object())
    {
        set_default(rolling, "partition", 0);
    }
}

/// Fields of features that are off by default go.
fn drop_disabled(set: &mut Value) {
    if let Some(rolling) = set.at_mut(&["spec", "updateStrategy", "rollingUpdate"]) {
        remove(rolling, "maxUnavailable");
    }
    template::drop_disabled(set);
}

fn warnings(set: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, claim) in items(&set["spec"], "volumeClaimTemplates").iter().enumerate() {
        warnings.extend(volume::fractions(&format!("spec.volumeClaimTemplates[{i}]"), &claim["spec"]));
    }
    if integer(&set["spec"], "revisionHistoryLimit").is_some_and(|limit| limit < 0) {
        warnings.push(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
                .to_owned(),
        );
    }
    warnings
}
