//! Names and number of events.

use super::*;

/// The API server accepts one event for each name: events of two containers at one moment must have different
/// names.
#[test]
fn events_of_one_moment_have_different_names() {
    let now = Now { mono: Mono(1), wall: jiff::Timestamp::UNIX_EPOCH, boot_id: "b".into() };
    let named = |reason: &str, path: &str| {
        let field_path = (!path.is_empty()).then(|| path.to_owned());
        let involved = ObjectReference { name: Some("p".into()), field_path, ..ObjectReference::default() };
        event(involved, false, reason, "Container started", "n", &now)["metadata"]["name"].to_string()
    };
    let names = [named("Started", "spec.containers{a}"), named("Started", "spec.containers{b}"), named("Started", "")];
    assert!(names[0] != names[1] && names[1] != names[2] && names[0] != named("Created", "spec.containers{a}"));
    assert_eq!(names[0], named("Started", "spec.containers{a}"));
}

#[test]
fn event_of_a_long_pod_name_has_a_name_the_api_takes() {
    let now = Now { mono: Mono(1), wall: "2026-03-01T10:00:00Z".parse().expect("a time"), boot_id: "b".into() };
    let involved = ObjectReference { name: Some("x".repeat(253)), ..ObjectReference::default() };
    let event = event(involved, true, "Failed", "why", "n", &now);
    assert!(event["metadata"]["name"].as_str().is_some_and(|name| name.len() <= 253), "{event}");
}

/// The events of the outbox.
fn waiting(cx: &Context) -> Vec<Value> {
    let rows = cx.store.outbox().unwrap().into_iter();
    rows.filter_map(|row| if let Report::Event { event } = row.report { Some(event) } else { None }).collect()
}

fn status() -> Report {
    let text = String::new;
    Report::PodStatus { namespace: text(), name: text(), uid: text(), status: Value::Null }
}

#[test]
fn repeated_events_without_a_link_are_one_row_of_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let mut cx = Context::for_tests(folder.path());
    (0..3).for_each(|_| cx.node_event(true, "Shortage", "of disk").unwrap());
    cx.node_event(true, "Shortage", "of memory").unwrap();
    let counts: Vec<_> = waiting(&cx).iter().map(|event| (event["message"].clone(), event["count"].clone())).collect();
    assert_eq!(counts, [(Value::from("of disk"), Value::from(3)), (Value::from("of memory"), Value::from(1))]);
}

#[test]
fn dropped_events_are_counted_in_one_event_and_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut cx = Context::for_tests(folder.path());
    cx.tell_dropped().unwrap();
    assert!(waiting(&cx).is_empty(), "none was dropped");
    cx.store.write(|writer| writer.set_fact(Fact::Dropped, "7")).unwrap();
    (0..2).for_each(|_| cx.tell_dropped().unwrap());
    let events = waiting(&cx);
    assert_eq!(
        (events.len(), &events[0]["reason"], &events[0]["count"]),
        (1, &Value::from("EventsDropped"), &Value::from(1))
    );
    assert!(events[0]["message"].as_str().is_some_and(|text| text.starts_with("7 events were dropped")));
}

#[test]
fn acknowledged_reports_go_with_the_next_event_or_after_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let mut cx = Context::for_tests(folder.path());
    let rows = |cx: &Context| cx.store.outbox().unwrap().len();
    assert_eq!(cx.delete_acknowledged_due(Mono(u64::MAX)).unwrap(), None);
    let id = cx.store.write(|writer| writer.report(&status())).unwrap();
    cx.acknowledged.add(vec![id], Mono(0));
    assert_eq!((cx.delete_acknowledged_due(Mono(999)).unwrap(), rows(&cx)), (Some(Mono(1_000)), 1));
    assert_eq!((cx.delete_acknowledged_due(Mono(1_000)).unwrap(), rows(&cx)), (None, 0));
    let id = cx.store.write(|writer| writer.report(&status())).unwrap();
    cx.acknowledged.add(vec![id], Mono(0));
    cx.node_event(false, "Reason", "text").unwrap();
    assert_eq!((rows(&cx), cx.acknowledged.due()), (1, None), "the event alone is left");
}
