//! Static pods and their mirrors.

use std::rc::Rc;

use serde_json::{Value, json};

use super::*;
use crate::pod::record::PodRecord;

#[test]
fn static_pod_ends_with_its_manifest_and_not_with_an_unreadable_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut cx = Context::for_tests(folder.path());
    let mut pods = StaticPods::default();
    assert!(pods.scan(&mut cx).unwrap().is_empty(), "there is no folder");
    let (manifests, now) = (cx.paths.static_pods(), cx.clock.now());
    std::fs::create_dir_all(&manifests).unwrap();
    let file = manifests.join("web.yaml");
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: i}]}\n";
    std::fs::write(&file, text).unwrap();
    let mut found = pods.scan(&mut cx).unwrap();
    let pod = found.pop().unwrap();
    assert_eq!((found.len(), pod.metadata.name.as_deref()), (0, Some("web-n")));
    let uid = pod.metadata.uid.clone().unwrap();
    let record = PodRecord::new(&uid, "default", "web-n", PodSource::Static, &now);
    cx.pods.insert(Entry::new(Rc::new(pod), record));
    let is_ending = |cx: &Context| cx.pods.get(&uid).unwrap().record.deletion.is_some();
    assert_eq!(pods.scan(&mut cx).unwrap().len(), 1);
    assert!(!is_ending(&cx));
    std::fs::write(&file, "{").unwrap();
    assert!(pods.scan(&mut cx).unwrap().is_empty() && !is_ending(&cx), "which pod it is cannot be read");
    std::fs::remove_file(&file).unwrap();
    assert!(pods.scan(&mut cx).unwrap().is_empty() && is_ending(&cx));
}

#[test]
fn new_mirror_gets_the_status_and_one_of_no_pod_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let mut cx = Context::for_tests(folder.path());
    let record = PodRecord::new("s", "ns", "p", PodSource::Static, &cx.clock.now());
    cx.pods.insert(Entry { reported: Value::from(1), ..Entry::new(Rc::default(), record) });
    cx.pods.next_dirty();
    let mirror = |uid: &str| -> Pod {
        serde_json::from_value(json!({"metadata": {"uid": uid, "namespace": "ns", "name": "p"}})).unwrap()
    };
    for is_new in [true, false] {
        mirror_known(&mut cx, &mirror("m"), "s").unwrap();
        assert_eq!(cx.pods.next_dirty().is_some(), is_new);
    }
    let entry = cx.pods.get("s").unwrap();
    assert_eq!((entry.mirror_uid.as_deref(), &entry.reported), (Some("m"), &Value::Null));
    mirror_known(&mut cx, &mirror("m"), "unknown").unwrap();
    let reports: Vec<Report> = cx.store.outbox().unwrap().into_iter().map(|row| row.report).collect();
    let gone = Report::MirrorGone { namespace: "ns".into(), name: "p".into(), static_uid: "unknown".into() };
    assert_eq!(reports, [gone]);
    let mut pods = StaticPods::default();
    pods.mirrors_asked.insert("s".into(), MirrorAsked::after(None, Mono(0)));
    pods.mirror_gone(&mut cx, "another").unwrap();
    assert_eq!(pods.mirrors_asked.len(), 1);
    pods.mirror_gone(&mut cx, "m").unwrap();
    assert!(pods.mirrors_asked.is_empty() && cx.pods.get("s").unwrap().mirror_uid.is_none());
}

#[test]
fn mirror_that_does_not_come_is_requested_less_and_less_often() {
    let (mut asked, mut now) = (None, Mono(1_000));
    for pause in [5, 10, 20, 40, 60, 60] {
        let next = MirrorAsked::after(asked.as_ref(), now);
        assert_eq!(next.due, now.after(Duration::from_mins(pause)), "{pause} min");
        now = next.due;
        asked = Some(next);
    }
}

#[test]
fn manifests_are_read_at_once_and_then_every_twenty_seconds() {
    let mut pods = StaticPods::default();
    assert!(pods.is_due(Mono(0)));
    pods.next = Some(Mono(20_000));
    assert!(!pods.is_due(Mono(19_999)) && pods.is_due(Mono(20_000)) && pods.is_due(Mono(20_001)));
}

#[test]
fn new_connection_requests_every_missing_mirror() {
    let mut pods = StaticPods::default();
    pods.mirrors_asked.insert("a".into(), MirrorAsked::after(None, Mono(0)));
    pods.mirrors_asked.insert("b".into(), MirrorAsked::after(None, Mono(0)));
    pods.forgotten("b");
    assert_eq!(pods.mirrors_asked.keys().collect::<Vec<_>>(), ["a"], "its manifest may come back");
    pods.connected();
    assert!(pods.mirrors_asked.is_empty());
}
