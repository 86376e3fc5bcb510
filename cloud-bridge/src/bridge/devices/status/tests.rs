//! What is written for a report, case by case.

use edge_protocol::message::DeviceState;
use kube::api::DynamicObject;

use super::*;

const SPEAKER: Speaker<'static> = Speaker { node: "n", session: 10, now: "2026-03-01T10:00:00Z" };

fn device(uid: &str, properties: &[&str]) -> Device {
    let properties: Vec<Value> = properties.iter().map(|name| json!({ "name": name })).collect();
    let object = json!({"metadata": {"namespace": "ns", "name": "d", "uid": uid},
        "spec": {"nodeName": "n", "properties": properties}});
    Device::of(&serde_json::from_value::<DynamicObject>(object).unwrap()).unwrap()
}

fn value(text: &str, at_ms: u64) -> Option<TwinValue> {
    Some(TwinValue { value: text.into(), at_ms, kind: "float".into(), ..TwinValue::default() })
}

fn twin(property: &str, text: &str, at_ms: u64) -> TwinReport {
    TwinReport { property: property.into(), reported: value(text, at_ms), observed: None }
}

fn report(seq: u64, twins: Vec<TwinReport>) -> DeviceReport {
    DeviceReport { namespace: "ns".into(), name: "d".into(), uid: "u".into(), seq, state: None, twins }
}

fn state(state: &str, last_online: &str) -> Option<DeviceState> {
    Some(DeviceState { state: state.into(), last_online: last_online.into(), ..DeviceState::default() })
}

/// Applies a merge patch as an API does.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *target = patch.clone() };
    if !target.is_object() {
        *target = json!({});
    }
    for (field, value) in patch {
        if value.is_null() {
            drop(target.as_object_mut().unwrap().remove(field));
        } else {
            merge(target.as_object_mut().unwrap().entry(field).or_insert(Value::Null), value);
        }
    }
}

/// The object after the plan was executed, or `None` if the plan does nothing.
fn carried_out(existing: Option<&Value>, plan: Plan) -> Option<Value> {
    match plan {
        Plan::Create(object) => Some(object),
        Plan::Patch { status, owner } => {
            let mut object = existing.cloned().unwrap();
            [Some(status), owner].into_iter().flatten().for_each(|patch| merge(&mut object, &patch));
            Some(object)
        }
        _ => None,
    }
}

fn written(existing: Option<&Value>, device: &Device, report: &DeviceReport) -> Value {
    let (plan, refused) = plan(existing, device, report, SPEAKER, false);
    assert_eq!(refused, [""; 0]);
    let object = carried_out(existing, plan).expect("something to be written");
    assert_eq!(super::plan(Some(&object), device, report, SPEAKER, false).0, Plan::Nothing, "all of it is there");
    object
}

#[test]
fn d01_the_first_report_makes_it_with_everything_in_it() {
    let report = DeviceReport { state: state("online", "2026-03-01T09:00:00Z"), ..report(1, vec![twin("a", "1", 5)]) };
    let object = written(None, &device("u", &["a", "b"]), &report);
    let owner = json!({"apiVersion": DEVICES_API, "kind": "Device", "name": "d", "uid": "u", "controller": true,
        "blockOwnerDeletion": true});
    let reported = json!({"value": "1", "metadata": {"timestamp": "5", "type": "float"}});
    let expected = json!({
        "apiVersion": DEVICES_API, "kind": "DeviceStatus", "spec": {},
        "metadata": {"namespace": "ns", "name": "d", "ownerReferences": [owner]},
        "status": {
            "twins": [{"propertyName": "a", "reported": reported}],
            "state": "online", "lastOnlineTime": "2026-03-01T09:00:00Z",
            "extensions": {"sampan.dev": {"node": "n", "session": 10, "seq": 1, "since": "2026-03-01T10:00:00Z"}},
        },
    });
    assert_eq!(object, expected);
}

/// If status is a subresource, a new object does not have a status yet.
#[test]
fn a_status_that_the_api_left_out_is_written_after_it() {
    let (device, first) = (device("u", &["a"]), report(1, vec![twin("a", "1", 5)]));
    let Plan::Create(mut made) = plan(None, &device, &first, SPEAKER, false).0 else { panic!("a new one") };
    made.as_object_mut().unwrap().remove("status");
    made.set_at(&["metadata", "resourceVersion"], "7".into());
    let Plan::Patch { status, owner: None } = plan(Some(&made), &device, &first, SPEAKER, false).0 else {
        panic!("a patch")
    };
    assert_eq!(status["metadata"], json!({"resourceVersion": "7"}));
    assert_eq!(status["status"]["twins"][0]["reported"]["value"], "1");
    let empty = report(2, Vec::new());
    assert_eq!(plan(Some(&made), &device, &empty, SPEAKER, false).0, Plan::Nothing, "nothing is nothing");
}

#[test]
fn what_says_the_same_again_is_one_write_for_each_session() {
    let device = device("u", &["a"]);
    let object = written(None, &device, &report(3, vec![twin("a", "1", 5)]));
    let same = |object: &Value, session: u64, seq: u64| {
        let speaker = Speaker { session, ..SPEAKER };
        plan(Some(object), &device, &report(seq, vec![twin("a", "1", 5)]), speaker, false).0
    };
    assert_eq!((same(&object, 10, 3), same(&object, 10, 4)), (Plan::Nothing, Plan::Nothing));
    // A late write of an older connection then fails.
    let fenced = carried_out(Some(&object), same(&object, 11, 1)).expect("is there");
    assert_ne!(fenced["status"]["extensions"], object["status"]["extensions"]);
    assert_eq!(same(&fenced, 11, 2), Plan::Nothing);
    assert_eq!(same(&fenced, 10, 9), Plan::Nothing);
    let later = report(4, vec![twin("a", "1", 6)]);
    assert!(matches!(plan(Some(&object), &device, &later, SPEAKER, false).0, Plan::Patch { .. }), "its time is news");
}

#[test]
fn d04_nothing_older_replaces_what_is_there() {
    let device = device("u", &["a"]);
    let object = written(None, &device, &report(3, vec![twin("a", "3", 3)]));
    let old = report(2, vec![twin("a", "2", 2)]);
    assert_eq!(plan(Some(&object), &device, &old, SPEAKER, false).0, Plan::Nothing);
    let fenced = Speaker { session: 9, ..SPEAKER };
    let late = report(99, vec![twin("a", "2", 2)]);
    assert_eq!(plan(Some(&object), &device, &late, fenced, false).0, Plan::Nothing);
    // A node without its state starts over, with a newer connection.
    let newer = Speaker { session: 11, ..SPEAKER };
    assert!(matches!(plan(Some(&object), &device, &old, newer, false).0, Plan::Patch { .. }));
}

/// Sessions of two nodes are not comparable.
#[test]
fn status_of_another_node_is_replaced_after_the_device_moved() {
    let device = device("u", &["a"]);
    let object = written(None, &device, &report(3, vec![twin("a", "3", 3)]));
    let other = Speaker { node: "m", session: 1, ..SPEAKER };
    let news = report(1, vec![twin("a", "1", 4)]);
    assert_eq!(plan(Some(&object), &device, &news, other, false).0, Plan::Confirm);
    let (plan, _) = plan(Some(&object), &device, &news, other, true);
    let now = carried_out(Some(&object), plan).unwrap();
    assert_eq!(now["status"]["extensions"]["sampan.dev"], json!({"node": "m", "session": 1, "seq": 1}));
    assert_eq!(now["status"]["twins"][0]["reported"]["value"], "1");
}

#[test]
fn what_a_report_does_not_mention_stays_as_long_as_the_device_has_it() {
    let both = device("u", &["b", "a"]);
    let first = DeviceReport {
        state: state("ok", "2026-03-01T09:00:00Z"),
        ..report(1, vec![twin("a", "1", 5), twin("b", "1", 5)])
    };
    let object = written(None, &both, &first);
    let observed = TwinReport { property: "a".into(), reported: None, observed: value("2", 6) };
    let object = written(Some(&object), &both, &report(2, vec![observed]));
    let status = &object["status"];
    assert_eq!(status["twins"][0]["propertyName"], "b", "in the order of the Device");
    let a = &status["twins"][1];
    assert_eq!((&a["reported"]["value"], &a["observedDesired"]["value"]), (&json!("1"), &json!("2")));
    assert_eq!((&status["state"], &status["lastOnlineTime"]), (&json!("ok"), &json!("2026-03-01T09:00:00Z")));
    assert_eq!(status["extensions"]["sampan.dev"]["since"], SPEAKER.now);
    // An empty time does not clear one; a removed property is removed.
    let offline = DeviceReport { state: state("offline", ""), ..report(3, Vec::new()) };
    let object = written(Some(&object), &device("u", &["a"]), &offline);
    assert_eq!(object["status"]["twins"].as_array().map(Vec::len), Some(1));
    assert_eq!(object["status"]["lastOnlineTime"], "2026-03-01T09:00:00Z");
}

#[test]
fn the_time_since_which_a_state_holds_stays_with_it() {
    let device = device("u", &[]);
    let of = |seq, name: &str| DeviceReport { state: state(name, ""), ..report(seq, Vec::new()) };
    let object = written(None, &device, &of(1, "online"));
    let later = Speaker { now: "2026-03-01T11:00:00Z", ..SPEAKER };
    assert_eq!(plan(Some(&object), &device, &of(2, "online"), later, false).0, Plan::Nothing);
    let (plan, _) = plan(Some(&object), &device, &of(2, "offline"), later, false);
    let object = carried_out(Some(&object), plan).unwrap();
    assert_eq!(object["status"]["extensions"]["sampan.dev"]["since"], later.now);
}

#[test]
fn what_others_say_in_extensions_stays_and_old_refusals_go() {
    let device = device("u", &["a"]);
    let unknown = report(1, vec![twin("a", "1", 5), twin("hum", "1", 5)]);
    let (plan, refused) = plan(None, &device, &unknown, SPEAKER, false);
    assert_eq!(refused, ["property hum is not in spec.properties"]);
    let mut object = carried_out(None, plan).unwrap();
    object.set_at(&["status", "extensions", "example.com"], json!({"x": 1}));
    let ours = &object["status"]["extensions"]["sampan.dev"];
    assert_eq!(ours["refused"], json!(refused));
    let (again, _) = super::plan(Some(&object), &device, &unknown, SPEAKER, false);
    assert_eq!(again, Plan::Nothing, "the same refusals are no news");
    let object = written(Some(&object), &device, &report(2, vec![twin("a", "1", 5)]));
    assert_eq!(object["status"]["extensions"]["example.com"], json!({"x": 1}));
    assert_eq!(object["status"]["extensions"]["sampan.dev"].get("refused"), None);
}

#[test]
fn d03_nothing_of_an_earlier_device_is_shown() {
    let old = written(None, &device("u", &["a", "b"]), &report(1, vec![twin("a", "old", 5), twin("b", "old", 5)]));
    let new = device("v", &["a", "b"]);
    let news = report(1, vec![twin("b", "new", 6)]);
    assert_eq!(plan(Some(&old), &new, &news, SPEAKER, false).0, Plan::Earlier);
    // Deleted with its dependents orphaned, so it does not have an owner.
    let mut orphan = old.clone();
    orphan.set_at(&["metadata", "ownerReferences"], json!([{"kind": "ConfigMap", "uid": "x"}]));
    let object = written(Some(&orphan), &new, &news);
    let twins = object["status"]["twins"].as_array().unwrap();
    assert_eq!((twins.len(), &twins[0]["reported"]["value"]), (1, &json!("new")));
    let owners = object["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!((owners.len(), &owners[1]["uid"]), (2, &json!("v")));
}

#[test]
fn a_clock_that_was_not_set_is_said() {
    let mut unset = twin("a", "1", 5);
    unset.reported.as_mut().unwrap().unsynchronized = true;
    unset.reported.as_mut().unwrap().kind.clear();
    let object = written(None, &device("u", &["a"]), &report(1, vec![unset]));
    let metadata = &object["status"]["twins"][0]["reported"]["metadata"];
    assert_eq!(*metadata, json!({"timestamp": "5", "clock": "unsynchronized"}));
}

/// A client with the right to write a DeviceStatus may write anything.
#[test]
fn d11_a_status_of_any_shape_is_no_end_of_anything() {
    let device = device("u", &["a"]);
    let owner = json!([{"kind": "Device", "uid": "u"}]);
    for status in [
        json!(1),
        json!([]),
        json!({"twins": 1, "state": 2, "lastOnlineTime": {}, "extensions": []}),
        json!({"twins": [1, "x", null, {}, {"propertyName": "a", "reported": 1}, {"propertyName": "a", "reported": {"value": 1}}]}),
        json!({"extensions": {"sampan.dev": 1}}),
        json!({"extensions": {"sampan.dev": {"session": "x", "seq": -1, "node": 1, "refused": {}, "since": 3, "odd": 1}}}),
    ] {
        for owners in [owner.clone(), json!(1), json!([1]), Value::Null] {
            let object = json!({"metadata": {"ownerReferences": owners, "resourceVersion": "1"}, "status": status});
            let (plan, _) = plan(Some(&object), &device, &report(1, vec![twin("a", "1", 5)]), SPEAKER, false);
            assert!(matches!(plan, Plan::Patch { .. }), "{object}");
        }
    }
}

/// Next step of a run with two nodes. Each may have two connections at the same time: one of them believes too long
/// that it is the newest.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The connection reads the status for its next report.
    Read(usize),
    /// The connection writes on the version that it has read.
    Write(usize),
    /// The node connects again, with or without its state.
    Connect(usize, bool),
    /// The Device is bound to this node from now on.
    Move(usize),
}

#[derive(Clone, Default)]
struct Writing {
    session: u64,
    seq: u64,
    /// The status that was read for the report under way, if it exists.
    read: Option<Option<Value>>,
    /// Whether the Device was the node's all the time since then.
    own: bool,
}

proptest::proptest! {
    /// Reports of a node appear in their order, whatever other clients read and write in between, and however late a
    /// write is.
    #[test]
    fn d04_what_is_shown_is_monotone(steps in proptest::collection::vec(step(), 1..120)) {
        let device = device("u", &["a"]);
        let (mut connections, mut there) = (vec![Writing::default(); 4], None::<Value>);
        let (mut version, mut bound, mut sessions, mut newest) = (0, 0, 1, [(0, 0); 2]);
        for step in steps {
            match step {
                Step::Connect(at, forgets) => {
                    sessions += 1;
                    let seq = if forgets { 0 } else { connections[at].seq.max(connections[at ^ 1].seq) };
                    connections[at] = Writing { session: sessions, seq, ..Writing::default() };
                }
                Step::Move(node) => {
                    bound = node;
                    connections.iter_mut().for_each(|one| one.own = false);
                }
                Step::Read(at) => {
                    // A connection that knows that it is not the newest does not start.
                    if connections[at].session > connections[at ^ 1].session {
                        let one = &mut connections[at];
                        (one.seq, one.read, one.own) = (one.seq + 1, Some(there.clone()), bound == at / 2);
                    }
                }
                Step::Write(at) => {
                    let Writing { session, seq, read, own } = connections[at].clone();
                    let Some(read) = read else { continue };
                    let speaker = Speaker { node: ["m", "n"][at / 2], session, now: SPEAKER.now };
                    let report = report(seq, vec![twin("a", &format!("{at} {session} {seq}"), seq)]);
                    let decide = |confirmed| plan(read.as_ref(), &device, &report, speaker, confirmed).0;
                    let decided = decide(false);
                    let decided = if decided == Plan::Confirm && own { decide(true) } else { decided };
                    let Some(mut written) = carried_out(read.as_ref(), decided) else {
                        connections[at].read = None;
                        continue;
                    };
                    let at_version = |object: &Option<Value>| object.as_ref().map(|object| object["metadata"]["resourceVersion"].clone());
                    if at_version(&read) != at_version(&there) {
                        // The API refuses the write, and the patch is computed again from the present state.
                        connections[at].read = Some(there.clone());
                        continue;
                    }
                    connections[at].read = None;
                    version += 1;
                    written.set_at(&["metadata", "resourceVersion"], version.to_string().into());
                    let shown = (session, seq);
                    proptest::prop_assert!(shown > newest[at / 2], "{shown:?} after {:?}", newest[at / 2]);
                    newest[at / 2] = shown;
                    there = Some(written);
                }
            }
        }
    }
}

fn step() -> impl proptest::strategy::Strategy<Value = Step> {
    use proptest::prelude::*;
    prop_oneof![
        5 => (0..4_usize).prop_map(Step::Read),
        6 => (0..4_usize).prop_map(Step::Write),
        2 => ((0..4_usize), any::<bool>()).prop_map(|(at, forgets)| Step::Connect(at, forgets)),
        1 => (0..2_usize).prop_map(Step::Move),
    ]
}

/// After a restart a node reports what it has kept, and does not know whether something newer was reported since (D4).
#[test]
fn d04_what_was_kept_counts_only_where_it_is_later() {
    let device = device("u", &["temp"]);
    let there = written(None, &device, &report(7, vec![twin("temp", "5", 100)]));
    let shown = |at_ms: u64, kept: bool| {
        let mut twin = twin("temp", "4", at_ms);
        twin.reported.iter_mut().for_each(|value| value.kept = kept);
        let plan = plan(Some(&there), &device, &report(8, vec![twin]), SPEAKER, false).0;
        let now = carried_out(Some(&there), plan).unwrap_or_else(|| there.clone());
        now["status"]["twins"][0]["reported"]["value"].clone()
    };
    assert_eq!((shown(99, true), shown(101, true), shown(99, false)), ("5".into(), "4".into(), "4".into()));
}

/// The node counts its reports: if its clock is not set, the count shows which is newer.
#[test]
fn d04_what_was_kept_before_a_report_that_is_there_does_not_count() {
    let device = device("u", &["temp", "hum"]);
    let unset = |text: &str, kept_seq: u64| {
        let mut twin = twin("temp", text, 100);
        twin.reported.iter_mut().for_each(|value| {
            (value.kept, value.unsynchronized, value.kept_seq) = (kept_seq > 0, true, kept_seq);
        });
        twin
    };
    let there = written(None, &device, &report(7, vec![unset("5", 0)]));
    let shown = |kept_seq: u64| {
        let told = report(9, vec![unset("4", kept_seq), twin("hum", "40", 100)]);
        written(Some(&there), &device, &told)["status"]["twins"][0]["reported"]["value"].clone()
    };
    assert_eq!((shown(6), shown(7)), ("5".into(), "4".into()));
    // The API has nothing newer.
    let mut hum = unset("41", 6);
    hum.property = "hum".into();
    let status = written(Some(&there), &device, &report(9, vec![hum]));
    assert_eq!(status["status"]["twins"][1]["reported"]["value"], "41");
    // The count of another node.
    let by_other = Speaker { node: "m", ..SPEAKER };
    let plan = plan(Some(&there), &device, &report(9, vec![unset("4", 6)]), by_other, true).0;
    assert_eq!(carried_out(Some(&there), plan).unwrap()["status"]["twins"][0]["reported"]["value"], "4");
}

#[test]
fn d04_a_kept_state_counts_only_where_it_is_later() {
    let device = device("u", &[]);
    let state = |state: &str, at_ms: u64, kept: bool| {
        Some(DeviceState { state: state.into(), at_ms, kept, ..DeviceState::default() })
    };
    let of = |state| DeviceReport { state, ..report(8, Vec::new()) };
    let there = written(None, &device, &of(state("online", 100, false)));
    let shown = |state| written(Some(&there), &device, &of(state))["status"]["state"].clone();
    assert_eq!(plan(Some(&there), &device, &of(state("offline", 99, true)), SPEAKER, false).0, Plan::Nothing);
    assert_eq!(shown(state("offline", 101, true)), "offline");
    assert_eq!(shown(state("offline", 99, false)), "offline");
}

/// A clock that is not set does not show which is newer.
#[test]
fn what_was_kept_by_a_clock_that_was_not_set_counts() {
    let device = device("u", &["temp"]);
    let there = written(None, &device, &report(7, vec![twin("temp", "5", 1_700_000_000_000)]));
    let mut kept = twin("temp", "6", 100);
    kept.reported.iter_mut().for_each(|value| (value.kept, value.unsynchronized) = (true, true));
    let shown = written(Some(&there), &device, &report(8, vec![kept]));
    assert_eq!(shown["status"]["twins"][0]["reported"]["value"], "6");
    let later = written(
        Some(&shown),
        &device,
        &report(
            9,
            vec![{
                let mut later = twin("temp", "7", 99);
                later.reported.iter_mut().for_each(|value| value.kept = true);
                later
            }],
        ),
    );
    assert_eq!(later["status"]["twins"][0]["reported"]["value"], "7");
}
