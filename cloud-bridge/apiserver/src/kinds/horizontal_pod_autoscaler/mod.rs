//! HorizontalPodAutoscalers: stored as `autoscaling/v2` has them, served in that form and as `autoscaling/v1`.

mod behavior;
mod check;
mod metric;
mod table;
#[cfg(test)]
mod tests;
mod v1;
mod validate;

use k8s_openapi::api::autoscaling;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::defaults::drop_zero;
use super::kind::{Kind, PLAIN, keep_status};
use crate::patch::merge_keys::{CONDITIONS, META, Type, object, one};
use crate::resource::rules::{Conversion, Rules};
use apimachinery::json::{items_mut, set_default};

const AUTOSCALER: Kind = Kind {
    group: "autoscaling",
    version: "v2",
    kind: "HorizontalPodAutoscaler",
    plural: "horizontalpodautoscalers",
    singular: "horizontalpodautoscaler",
    short_names: &["hpa"],
    categories: &["all"],
    namespaced: true,
    check: Some(check::check::<autoscaling::v2::HorizontalPodAutoscaler>),
    rules: Rules::SPEC_AND_STATUS,
    default,
    prepare_create: |autoscaler| autoscaler.set("status", json!({"currentMetrics": null, "desiredReplicas": 0})),
    prepare_update: keep_status,
    create: validate::create,
    update: validate::update,
    status: Some(validate::status),
    table: &table::TABLE,
    keys: &KEYS,
    ..PLAIN
};

/// The stored form.
pub(crate) static KIND: Kind = AUTOSCALER;

/// The older version of the same objects. Its annotations contain the fields that it does not have.
pub(crate) static V1: Kind = Kind {
    version: "v1",
    check: Some(check::check::<autoscaling::v1::HorizontalPodAutoscaler>),
    rules: Rules {
        conversion: Some(Conversion { to_stored: v1::to_stored, to_served: v1::to_served }),
        ..AUTOSCALER.rules
    },
    keys: &V1_KEYS,
    ..AUTOSCALER
};

static KEYS: Type = Type { fields: &[META, object("status", &CONDITIONS)] };
static V1_KEYS: Type = Type { fields: &[META, object("spec", &V1_SPEC)] };
static V1_SPEC: Type = Type { fields: &[one("scaleTargetRef")] };

/// Follows pkg/apis/autoscaling/v2/defaults.go.
fn default(autoscaler: &mut Value) {
    if let Some(status) = autoscaler.get_mut("status") {
        drop_zero(status, &["currentReplicas"]);
        set_default(status, "currentMetrics", Value::Null);
        set_default(status, "desiredReplicas", 0);
        items_mut(status, "currentMetrics").for_each(metric::canonical);
    }
    let Some(spec) = autoscaler.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    set_default(spec, "minReplicas", 1);
    if spec["metrics"].as_array().is_none_or(Vec::is_empty) {
        spec.set("metrics", json!([metric::cpu_utilization(metric::DEFAULT_CPU_UTILIZATION.into())]));
    }
    items_mut(spec, "metrics").for_each(metric::canonical);
    if let Some(behavior) = spec.get_mut("behavior") {
        behavior::default(behavior);
    }
}
