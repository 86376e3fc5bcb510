//! How often the template of a DaemonSet has changed. Once a field of the spec, it is an annotation since apps/v1
//! (pkg/apis/apps/v1/conversion.go); no client may set it but at creation, and pods carry it as a label.

use k8s_openapi::api::apps::v1;
use sampan_json::SetField;
use serde_json::Value;

use crate::codec::decode::Decoded;
use crate::kinds::workload;
use apimachinery::json::{object_mut, text};

/// The annotation.
pub(super) const ANNOTATION: &str = "deprecated.daemonset.template.generation";

/// The typed check, with that of the annotation.
pub(super) fn check(set: &Value) -> Result<Decoded, String> {
    let decoded = workload::check::<v1::DaemonSet>(set)?;
    if let Some(Value::String(given)) = decoded.value["metadata"]["annotations"].get(ANNOTATION)
        && let Err(error) = given.parse::<i64>()
    {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let why = match error.kind() {
            NegOverflow | PosOverflow => "value out of range",
            _ => "invalid syntax",
        };
        return Err(format!("strconv.ParseInt: parsing {given:?}: {why}"));
    }
    Ok(decoded)
}

fn of(set: &Value) -> i64 {
    text(&set["metadata"]["annotations"], ANNOTATION).parse().unwrap_or_default()
}

fn tell(set: &mut Value, generation: i64) {
    if let Some(metadata) = set.get_mut("metadata") {
        object_mut(metadata, "annotations");
        metadata.set_at(&["annotations", ANNOTATION], generation.to_string().into());
    }
}

/// Sets the generation of a new DaemonSet: at least 1.
pub(super) fn create(set: &mut Value) {
    tell(set, of(set).max(1));
}

/// Rises with each change of the template.
pub(super) fn update(new: &mut Value, old: &Value) {
    let changed = new["spec"]["template"] != old["spec"]["template"];
    tell(new, of(old).saturating_add(changed.into()));
}

/// A change of the status leaves it as it is.
pub(super) fn keep(new: &mut Value, old: &Value) {
    tell(new, of(old));
}
