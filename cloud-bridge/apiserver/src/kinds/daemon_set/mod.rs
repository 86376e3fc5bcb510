//! DaemonSets, stored as Kubernetes stores them. Nothing acts on them here: that is a controller's.

mod generation;
mod table;
#[cfg(test)]
mod tests;
mod validate;

use sampan_json::SetField;
use serde_json::{Value, json};

use super::defaults::drop_zero;
use super::kind::{Kind, PLAIN, keep_status, spec_changed};
use super::workload::{self, template};
use crate::resource::rules::Rules;
use apimachinery::json::{object_mut, set_default, set_default_text, text};

pub(crate) static KIND: Kind = Kind {
    group: "apps",
    kind: "DaemonSet",
    plural: "daemonsets",
    singular: "daemonset",
    short_names: &["ds"],
    categories: &["all"],
    namespaced: true,
    check: Some(generation::check),
    rules: Rules { template: Some("/spec/template"), ..Rules::SPEC_AND_STATUS },
    generation: Some(spec_changed),
    default,
    prepare_create: |set| {
        set.set("status", NOTHING_SCHEDULED.iter().map(|field| ((*field).to_owned(), json!(0))).collect());
        template::drop_disabled(set);
        generation::create(set);
    },
    prepare_update: |new, old| {
        keep_status(new, old);
        template::drop_disabled(new);
        generation::update(new, old);
    },
    prepare_status: generation::keep,
    create: validate::create,
    update: validate::update,
    status: Some(validate::status),
    table: &table::TABLE,
    keys: &workload::KEYS,
    ..PLAIN
};

/// Counts of a status that are shown even if they are zero.
const NOTHING_SCHEDULED: &[&str] =
    &["currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"];

/// Follows SetDefaults_DaemonSet of pkg/apis/apps/v1/defaults.go.
fn default(set: &mut Value) {
    if let Some(status) = set.get_mut("status") {
        for field in NOTHING_SCHEDULED {
            set_default(status, field, 0);
        }
        drop_zero(status, &["observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable"]);
    }
    let Some(spec) = set.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    drop_zero(spec, &["minReadySeconds"]);
    set_default(spec, "revisionHistoryLimit", 10);
    object_mut(spec, "updateStrategy");
    if let Some(strategy) = spec.get_mut("updateStrategy") {
        set_default_text(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate" {
            object_mut(strategy, "rollingUpdate");
            if let Some(rolling) = strategy.get_mut("rollingUpdate") {
                set_default(rolling, "maxUnavailable", 1);
                set_default(rolling, "maxSurge", 0);
            }
        }
    }
    template::default(spec);
}
