//! Loading a store with missing rows.

use edge_protocol::message::ObjectKey;
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::pod::clock::{Mono, Now};

fn object(name: &str, annotations: &Value) -> Object {
    let key = ObjectKey { kind: "Pod".into(), namespace: "default".into(), name: name.into() };
    let uid = format!("uid-{name}");
    let metadata = json!({"name": name, "namespace": "default", "uid": uid, "annotations": annotations});
    let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}});
    Object { digest: ObjectDigest { key, uid, digest: "d".into() }, body }
}

fn record(name: &str) -> PodRecord {
    let now = Now { wall: Timestamp::UNIX_EPOCH, mono: Mono(1), boot_id: "boot".into() };
    PodRecord::new(&format!("uid-{name}"), "default", name, PodSource::Api, &now)
}

/// Pod `both` has object and record, `object` and `record` have one of them, `mirror` never has a record.
fn store(incomplete: bool) -> Store {
    let mut store = Store::in_memory().expect("opens");
    let put = |writer: &crate::store::Writer<'_>| {
        for name in ["both", "object"] {
            writer.put_object(&object(name, &json!({})))?;
        }
        writer.put_object(&object("mirror", &json!({ MIRROR: "static" })))?;
        writer.put_pod(&record("both"))?;
        writer.put_pod(&record("record"))?;
        if incomplete { writer.set_fact(Fact::Incomplete, "damaged") } else { Ok(()) }
    };
    store.write(put).expect("commits");
    store
}

fn names(restored: &Restored) -> [Vec<String>; 3] {
    let name = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
    [
        restored.recorded.iter().map(|recorded| name(&recorded.pod)).collect(),
        restored.wanted.iter().map(|(pod, _)| name(pod)).collect(),
        restored.kept.keys().cloned().collect(),
    ]
}

#[test]
fn a_pod_of_which_one_half_is_lost_is_kept_as_it_is() {
    let restored = restore(&store(false)).expect("reads");
    let expected: [&[&str]; 3] = [&["uid-both"], &["uid-mirror", "uid-object"], &["uid-record"]];
    assert_eq!(names(&restored), expected);
    // It may have ended long ago: nothing is started of which the record may be lost.
    let restored = restore(&store(true)).expect("reads");
    let expected: [&[&str]; 3] = [&["uid-both"], &["uid-mirror"], &["uid-object", "uid-record"]];
    assert_eq!(names(&restored), expected);
}

#[test]
fn only_a_complete_list_makes_the_store_complete() {
    let mut store = store(true);
    let put = Change::Put { seq: 1, object: object("more", &json!({})), sync: true };
    let batch = commit(&mut store, "s", vec![put], &|_| None).expect("commits").expect("a batch");
    assert!(!batch.complete && store.is_incomplete().expect("reads"));
    let done = Change::SyncComplete { seq: 2, absent: Vec::new() };
    let batch = commit(&mut store, "s", vec![done], &|_| None).expect("commits").expect("a batch");
    assert!(batch.complete && !store.is_incomplete().expect("reads"));
    assert_eq!(restore(&store).expect("reads").wanted.len(), 3);
}
