//! Events, in the two views of one storage that they have: `v1`, as stored, and `events.k8s.io/v1`.

mod table;

use std::time::Duration;

use k8s_openapi::api::{core, events};
use serde_json::{Map, Value};

use super::kind::{Kind, PLAIN, Selectable};
use crate::codec::decode;
use crate::resource::rules::{Conversion, Rules};
use apimachinery::field::{Errors, FieldError};
use apimachinery::json::{set_default, text};
use apimachinery::names;

/// How long an event is kept, as `--event-ttl` of the API server has it.
const TTL: Duration = Duration::from_secs(3600);

/// The storage of both views.
pub(crate) const STORAGE: &str = "events";

const EVENT: Kind = Kind {
    kind: "Event",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    namespaced: true,
    storage: STORAGE,
    check: Some(decode::check::<core::v1::Event>),
    rules: Rules {
        name: names::path_segment,
        allow_create_on_update: true,
        patch_keeps_name: false,
        enable_garbage_collection: false,
        ttl: Some(TTL),
        ..Rules::BUILT_IN
    },
    default,
    create: validate,
    update: |new, _| validate(new),
    columns: table::COLUMNS,
    row: table::row,
    fields: &[
        Selectable::text("involvedObject.kind", "/involvedObject/kind"),
        Selectable::text("involvedObject.namespace", "/involvedObject/namespace"),
        Selectable::text("involvedObject.name", "/involvedObject/name"),
        Selectable::text("involvedObject.uid", "/involvedObject/uid"),
        Selectable::text("involvedObject.apiVersion", "/involvedObject/apiVersion"),
        Selectable::text("involvedObject.resourceVersion", "/involvedObject/resourceVersion"),
        Selectable::text("involvedObject.fieldPath", "/involvedObject/fieldPath"),
        Selectable::text("reason", "/reason"),
        Selectable::text("reportingComponent", "/reportingComponent"),
        Selectable::either("source", "/source/component", "/reportingComponent"),
        Selectable::text("type", "/type"),
    ],
    ..PLAIN
};

pub(crate) static KIND: Kind = EVENT;

/// `events.k8s.io/v1`, which calls some fields otherwise.
pub(crate) static IN_ITS_GROUP: Kind = Kind {
    group: "events.k8s.io",
    check: Some(decode::check::<events::v1::Event>),
    rules: Rules {
        conversion: Some(Conversion {
            to_stored: |event| rename(event, STORED_NAMES.iter().copied()),
            to_served: |event| rename(event, STORED_NAMES.iter().map(|(served, stored)| (*stored, *served))),
        }),
        ..EVENT.rules
    },
    fields: &[
        Selectable::text("regarding.kind", "/involvedObject/kind"),
        Selectable::text("regarding.namespace", "/involvedObject/namespace"),
        Selectable::text("regarding.name", "/involvedObject/name"),
        Selectable::text("regarding.uid", "/involvedObject/uid"),
        Selectable::text("regarding.apiVersion", "/involvedObject/apiVersion"),
        Selectable::text("regarding.resourceVersion", "/involvedObject/resourceVersion"),
        Selectable::text("regarding.fieldPath", "/involvedObject/fieldPath"),
        Selectable::text("reason", "/reason"),
        Selectable::text("reportingController", "/reportingComponent"),
        Selectable::text("type", "/type"),
    ],
    ..EVENT
};

/// Fields that are stored under another name: as served, as stored.
const STORED_NAMES: &[(&str, &str)] = &[
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

fn rename(event: &mut Value, names: impl Iterator<Item = (&'static str, &'static str)>) {
    let Some(map) = event.as_object_mut() else { return };
    let renamed: Map<String, Value> =
        names.filter_map(|(from, to)| map.remove(from).map(|value| (to.to_owned(), value))).collect();
    map.extend(renamed);
}

/// Fields that the API server always writes.
fn default(event: &mut Value) {
    if event.get("regarding").is_some() {
        return;
    }
    set_default(event, "source", Value::Object(Map::new()));
    set_default(event, "firstTimestamp", Value::Null);
    set_default(event, "lastTimestamp", Value::Null);
    set_default(event, "eventTime", Value::Null);
    set_default(event, "reportingComponent", "");
    set_default(event, "reportingInstance", "");
}

/// It lives in the namespace of what it is about, or in `default`.
fn validate(event: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let involved = if event.get("regarding").is_some() { "regarding" } else { "involvedObject" };
    let about = text(&event[involved], "namespace");
    let own = text(&event["metadata"], "namespace");
    let shown = Value::from(about);
    if about.is_empty() {
        if !["default", "kube-system"].contains(&own) {
            errors.push(FieldError::invalid("involvedObject.namespace", &shown, "does not match event.namespace"));
        }
    } else if about != own {
        errors.push(FieldError::invalid("involvedObject.namespace", &shown, "does not match event.namespace"));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_views_are_inverse() {
        let resource = IN_ITS_GROUP.resource();
        let served =
            json!({"metadata": {}, "note": "n", "regarding": {"kind": "Pod"}, "reason": "r", "deprecatedCount": 1});
        let mut value = served.clone();
        resource.to_stored(&mut value);
        assert_eq!(
            value,
            json!({"metadata": {}, "message": "n", "involvedObject": {"kind": "Pod"}, "reason": "r", "count": 1})
        );
        resource.to_served(&mut value);
        assert_eq!(value, served);
    }
}
