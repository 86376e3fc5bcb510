//! The objects of events, in two forms: with `eventTime`, action and series, as the scheduler of Kubernetes writes them,
//! or with first and last time and a count, as most of its controllers do. Pure.

use k8s_openapi::api::core::v1::{self as core, EventSeries, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use serde_json::{Value, json};

use super::correlator::Observed;

/// Maximum length of a message in an event with an `eventTime`, in bytes (K8s pkg/apis/core/validation/events.go
/// `NoteLengthLimit`).
const MESSAGE_MAX: usize = 1024;

/// The object of an event that is not yet in the API.
pub(super) fn object(observed: &Observed) -> core::Event {
    let event = &observed.event;
    let either = core::Event {
        metadata: ObjectMeta { name: Some(observed.name.clone()), ..ObjectMeta::default() },
        involved_object: event.about.clone(),
        reason: Some(event.reason.to_owned()),
        type_: Some(event.kind.to_owned()),
        reporting_component: Some(event.component.to_owned()),
        ..core::Event::default()
    };
    match event.action {
        Some(action) => core::Event {
            action: Some(action.to_owned()),
            message: Some(cut(&event.message)),
            event_time: Some(MicroTime(observed.first)),
            series: (observed.count > 1).then(|| series(observed)),
            reporting_instance: Some(event.component.to_owned()),
            ..either
        },
        None => core::Event {
            message: Some(event.message.clone()),
            source: Some(EventSource { component: Some(event.component.to_owned()), host: None }),
            first_timestamp: Some(Time(observed.first)),
            last_timestamp: Some(Time(observed.last)),
            count: Some(observed.count),
            ..either
        },
    }
}

/// The merge patch of an event that happened again.
pub(super) fn repetition(observed: &Observed) -> Value {
    let message = &observed.event.message;
    if observed.event.action.is_some() {
        json!({"series": series(observed), "message": cut(message)})
    } else {
        json!({"count": observed.count, "lastTimestamp": Time(observed.last), "message": message})
    }
}

fn series(observed: &Observed) -> EventSeries {
    EventSeries { count: Some(observed.count), last_observed_time: Some(MicroTime(observed.last)) }
}

/// The message within the limit (K8s pkg/scheduler/schedule_one.go `truncateMessage`).
fn cut(message: &str) -> String {
    const END: &str = " ...";
    if message.len() <= MESSAGE_MAX {
        return message.to_owned();
    }
    let mut ends = (0..=MESSAGE_MAX - END.len()).rev();
    let end = ends.find(|end| message.is_char_boundary(*end)).unwrap_or_default();
    format!("{}{END}", message.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;
    use crate::events::event::Event;

    fn observed(action: Option<&'static str>, message: &str, count: i32) -> Observed {
        let about = ObjectReference { name: Some("a".to_owned()), ..ObjectReference::default() };
        let (kind, message) = ("Normal", message.to_owned());
        let at = |second| Timestamp::from_second(second).unwrap();
        Observed {
            event: Event { about, kind, reason: "R", message, component: "c", action },
            name: "a.1".to_owned(),
            count,
            first: at(0),
            last: at(60),
        }
    }

    fn made(observed: &Observed) -> Value {
        serde_json::to_value(object(observed)).unwrap()
    }

    #[test]
    fn events_of_actions_have_event_time_and_series() {
        let base = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "a.1"}, "involvedObject": {"name": "a"},
            "reason": "R", "message": "m", "type": "Normal", "action": "Binding",
            "eventTime": "1970-01-01T00:00:00.000000Z", "reportingComponent": "c", "reportingInstance": "c",
        });
        assert_eq!(made(&observed(Some("Binding"), "m", 1)), base);
        let series = json!({"count": 3, "lastObservedTime": "1970-01-01T00:01:00.000000Z"});
        let again = observed(Some("Binding"), "m", 3);
        assert_eq!(made(&again)["series"], series);
        assert_eq!(repetition(&again), json!({"series": series, "message": "m"}));
        let long = observed(Some("Binding"), &"m".repeat(2000), 2);
        for message in [&made(&long)["message"], &repetition(&long)["message"]] {
            assert_eq!(message.as_str().map(str::len), Some(MESSAGE_MAX));
        }
    }

    #[test]
    fn events_without_action_have_times_and_count() {
        let one = observed(None, "m", 2);
        let object = made(&one);
        assert_eq!(
            (&object["count"], &object["eventTime"], &object["series"]),
            (&json!(2), &Value::Null, &Value::Null)
        );
        assert_eq!(object["source"], json!({"component": "c"}));
        assert_eq!(repetition(&one), json!({"count": 2, "lastTimestamp": "1970-01-01T00:01:00Z", "message": "m"}));
    }

    #[test]
    fn long_messages_are_cut_between_letters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"a".repeat(1024)).len(), 1024);
        assert_eq!(cut(&"a".repeat(1025)), format!("{} ...", "a".repeat(1020)));
        assert_eq!(cut(&"€".repeat(500)), format!("{} ...", "€".repeat(340)));
    }
}
