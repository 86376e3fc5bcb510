//! The row of an event, in the core form and in that of events.k8s.io.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::columns::{NAME, Table, name, since};
use apimachinery::json::{integer, present, text};

/// Table of events.
pub(crate) const TABLE: Table<10> = Table {
    columns: [
        ("Last Seen", "string", 0, "The time at which the most recent occurrence of this event was recorded."),
        ("Type", "string", 0, "Normal or Warning."),
        ("Reason", "string", 0, "Why the transition happened, in one word."),
        ("Object", "string", 0, "The object that this event is about."),
        ("Subobject", "string", 1, "The part of the object that this event is about."),
        ("Source", "string", 1, "The component reporting this event."),
        ("Message", "string", 0, "A human-readable description of the status of this operation."),
        ("First Seen", "string", 1, "The time at which the event was first recorded."),
        ("Count", "string", 1, "The number of times this event has occurred."),
        (NAME.0, NAME.1, 1, NAME.3),
    ],
    row,
};

/// The cells of one event.
fn row(event: &Value, now: Timestamp) -> [Value; 10] {
    // events.k8s.io renames the fields of the core form.
    let either = |core: &str, new: &str| present(event, core).or(present(event, new)).unwrap_or(&Value::Null);
    let about = either("involvedObject", "regarding");
    let source = either("source", "deprecatedSource");
    let first_seen = match either("firstTimestamp", "deprecatedFirstTimestamp").as_str() {
        Some(first) => since(first, now),
        None => since(text(event, "eventTime"), now),
    };
    let mut last_seen = match either("lastTimestamp", "deprecatedLastTimestamp").as_str() {
        Some(last) => since(last, now),
        None => first_seen.clone(),
    };
    let mut count = either("count", "deprecatedCount").as_i64().filter(|n| *n != 0).unwrap_or(1);
    if let Some(series) = present(event, "series") {
        last_seen = since(text(series, "lastObservedTime"), now);
        count = integer(series, "count").unwrap_or(count);
    }
    let kind = text(about, "kind").to_lowercase();
    let object = match text(about, "name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let reporter = either("reportingComponent", "reportingController").as_str().unwrap_or_default();
    let first = |a: &str, b: &str| if a.is_empty() { b.to_owned() } else { a.to_owned() };
    let component = first(text(source, "component"), reporter);
    let instance = first(text(source, "host"), text(event, "reportingInstance"));
    let shown = if instance.is_empty() { component } else { format!("{component}, {instance}") };
    [
        last_seen.into(),
        text(event, "type").into(),
        text(event, "reason").into(),
        object.into(),
        text(about, "fieldPath").into(),
        shown.into(),
        either("message", "note").as_str().unwrap_or_default().trim().into(),
        first_seen.into(),
        json!(count),
        name(event),
    ]
}
