//! Events, in the two views of one storage that they have: `v1`, as stored, and `events.k8s.io/v1`.

mod table;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::{core, events};
use serde_json::{Map, Value};

use super::kind::{Kind, PLAIN, Selectable};
use crate::codec::decode;
use crate::resource::rules::{Conversion, Rules};
use apimachinery::field::{Errors, FieldError, invalid_text};
use apimachinery::json::{integer, present, set_default, text};
use apimachinery::names;

/// How long an event is kept, as `--event-ttl` of the API server has it.
const TTL: Duration = Duration::from_secs(3600);

/// Field of `events.k8s.io/v1` with the reporter of an event.
const CONTROLLER: &str = "reportingController";
/// Bytes of an instance, an action and a reason, and of a message.
const TEXT_MAX: usize = 128;
const MESSAGE_MAX: usize = 1024;

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
    create: |event| validate(event, "reportingComponent"),
    update: |new, _| validate(new, "reportingComponent"),
    table: &table::TABLE,
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
    create,
    update,
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

/// Rules of both versions (K8s pkg/apis/core/validation/events.go `legacyValidateEvent`): an event is in the namespace
/// of its object, unless it has an `eventTime`; then it names its reporter. `controller` is the version's field for the
/// reporter.
fn validate(event: &Value, controller: &str) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let about = text(&event["involvedObject"], "namespace");
    let own = text(&event["metadata"], "namespace");
    let is_new = present(event, "eventTime").is_some();
    let fits = match about {
        "" => own == "default" || is_new && own == "kube-system",
        about => is_new || about == own,
    };
    if !fits {
        let why = "does not match event.namespace";
        errors.push(FieldError::invalid("involvedObject.namespace", &about.into(), why));
    }
    if !is_new {
        return errors;
    }
    let name = text(event, "reportingComponent");
    if name.is_empty() {
        errors.push(FieldError::required(controller, ""));
    }
    invalid_text(&mut errors, controller, name, names::qualified_name(name));
    for field in ["reportingInstance", "action", "reason"] {
        if text(event, field).is_empty() {
            errors.push(FieldError::required(field, ""));
        }
        at_most(&mut errors, event, field, TEXT_MAX);
    }
    at_most(&mut errors, event, "message", MESSAGE_MAX);
    errors
}

fn at_most(errors: &mut Errors, event: &Value, field: &str, max: usize) {
    if text(event, field).len() > max {
        errors.push(FieldError::invalid(field, &"".into(), &format!("can have at most {max} characters")));
    }
}

/// Rules of a new event of `events.k8s.io/v1` (`ValidateEventCreate`).
fn create(event: &Value) -> Vec<FieldError> {
    let mut errors = validate(event, CONTROLLER);
    let name = text(&event["metadata"], "name");
    invalid_text(&mut errors, "metadata.name", name, names::dns_subdomain(name));
    series(&mut errors, event);
    if present(event, "eventTime").is_none() {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = text(event, "type");
    if !["Normal", "Warning"].contains(&kind) {
        errors.push(FieldError::invalid("type", &"".into(), &format!("has invalid value: {kind}")));
    }
    let sources = ["component", "host"].map(|field| text(&event["source"], field));
    for (field, is_set) in [
        ("firstTimestamp", present(event, "firstTimestamp").is_some()),
        ("lastTimestamp", present(event, "lastTimestamp").is_some()),
        ("count", integer(event, "count").is_some_and(|count| count != 0)),
        ("source", sources != ["", ""]),
    ] {
        if is_set {
            errors.push(FieldError::invalid(field, &"".into(), "needs to be unset"));
        }
    }
    errors
}

/// Rules of a change through `events.k8s.io/v1` (`ValidateEventUpdate`): only the series may change.
fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    const FIXED: [&str; 11] = [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "type",
        "action",
        "related",
        "reportingInstance",
    ];
    let mut errors = validate(new, CONTROLLER);
    if present(new, "series") != present(old, "series") {
        series(&mut errors, new);
    }
    let mut fixed = |field: &str, shown: &str, is_changed: bool| {
        if is_changed {
            errors.push(FieldError::invalid(shown, &new[field], "field is immutable"));
        }
    };
    for field in FIXED {
        fixed(field, field, filled(new, field) != filled(old, field));
    }
    fixed("reportingComponent", CONTROLLER, text(new, "reportingComponent") != text(old, "reportingComponent"));
    // Clients write more digits than the API keeps.
    let time = |event: &Value| text(event, "eventTime").parse::<Timestamp>().ok().map(Timestamp::as_microsecond);
    fixed("eventTime", "eventTime", time(new) != time(old));
    errors
}

/// A field that is not empty.
fn filled<'a>(event: &'a Value, field: &str) -> Option<&'a Value> {
    let is_empty = |value: &Value| match value {
        Value::String(text) => text.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        value => *value == 0,
    };
    present(event, field).filter(|value| !is_empty(value))
}

fn series(errors: &mut Errors, event: &Value) {
    let Some(series) = present(event, "series") else { return };
    if integer(series, "count").unwrap_or_default() < 2 {
        errors.push(FieldError::invalid("series.count", &"".into(), "should be at least 2"));
    }
    if present(series, "lastObservedTime").is_none() {
        errors.push(FieldError::required("series.lastObservedTime", ""));
    }
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

    fn told(errors: Vec<FieldError>) -> Vec<String> {
        errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    fn event(more: Value) -> Value {
        let mut event = json!({"metadata": {"name": "e", "namespace": "a"}, "involvedObject": {"namespace": "a"},
            "eventTime": "2026-01-01T00:00:00.000001Z", "reportingComponent": "example.com/c", "reportingInstance": "i",
            "action": "A", "reason": "R", "type": "Normal"});
        json_patch::merge(&mut event, &more);
        event
    }

    #[test]
    fn events_lie_beside_what_they_are_about() {
        let old = json!({"eventTime": null});
        for (is_new, about, own, fits) in [
            (false, "a", "a", true),
            (false, "a", "b", false),
            (false, "", "default", true),
            (false, "", "kube-system", false),
            (true, "", "kube-system", true),
            (true, "", "a", false),
            (true, "a", "b", true),
        ] {
            let mut one = event(json!({"metadata": {"namespace": own}, "involvedObject": {"namespace": about}}));
            if !is_new {
                json_patch::merge(&mut one, &old);
            }
            assert_eq!(validate(&one, CONTROLLER).is_empty(), fits, "{about:?} in {own:?}, new: {is_new}");
        }
    }

    #[test]
    fn new_events_say_who_reports_what() {
        assert_eq!(told(create(&event(json!({})))), [""; 0]);
        let unsaid = json!({"reportingComponent": null, "reportingInstance": "", "action": "a".repeat(129), "reason": null,
            "message": "m".repeat(1025)});
        let wrong = told(validate(&event(unsaid), "reportingComponent"));
        assert_eq!(wrong[0], "reportingComponent: Required value");
        assert_eq!(
            wrong[wrong.len() - 4..],
            [
                "reportingInstance: Required value",
                "action: Invalid value: \"\": can have at most 128 characters",
                "reason: Required value",
                "message: Invalid value: \"\": can have at most 1024 characters",
            ]
        );
        let strange = json!({"eventTime": null, "type": "Bad", "count": 1, "source": {"host": "h"}, "series": {"count": 1},
            "firstTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(
            told(create(&event(strange.clone()))),
            [
                "series.count: Invalid value: \"\": should be at least 2",
                "series.lastObservedTime: Required value",
                "eventTime: Required value",
                "type: Invalid value: \"\": has invalid value: Bad",
                "firstTimestamp: Invalid value: \"\": needs to be unset",
                "count: Invalid value: \"\": needs to be unset",
                "source: Invalid value: \"\": needs to be unset",
            ]
        );
        assert_eq!(told(validate(&event(strange), "reportingComponent")), [""; 0], "v1 takes them");
    }

    #[test]
    fn only_the_series_of_an_event_goes_on() {
        let change = |more: Value| told(update(&event(more), &event(json!({}))));
        let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}});
        assert_eq!(change(series), [""; 0]);
        assert_eq!(change(json!({"eventTime": "2026-01-01T00:00:00.000001999Z", "source": {}, "count": 0})), [""; 0]);
        assert_eq!(change(json!({"reason": "S"})), ["reason: Invalid value: \"S\": field is immutable"]);
        assert_eq!(
            change(json!({"reportingComponent": "d"})),
            ["reportingController: Invalid value: \"d\": field is immutable"]
        );
        assert_eq!(change(json!({"series": {"count": 1, "lastObservedTime": "2026-01-01T00:00:01Z"}})).len(), 1);
        assert_eq!(change(json!({"eventTime": "2026-01-01T00:00:01Z"})).len(), 1);
    }
}
