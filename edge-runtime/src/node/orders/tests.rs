//! What the node does when an order or news of its helper comes.

use edge_protocol::message::{Object, ObjectDigest};

use super::*;

fn key(job: &str) -> ObjectKey {
    ObjectKey { kind: ORDER.to_owned(), namespace: String::new(), name: job.to_owned() }
}

/// Orders of these jobs, as the bridge sends them.
fn sent(cx: &mut Context, jobs: &[&str]) -> Orders {
    let mut orders = Orders::default();
    for job in jobs {
        let digest = ObjectDigest { key: key(job), uid: (*job).to_owned(), digest: "d".to_owned() };
        let object = Object { digest, body: json!({"timeoutSeconds": 5}) };
        cx.store.write(|writer| writer.put_object(&object)).unwrap();
        assert!(orders.take(&key(job)));
    }
    orders
}

/// Statuses that wait for the bridge, by job.
fn reported(cx: &Context) -> Vec<(String, Value)> {
    let rows = cx.store.outbox().unwrap().into_iter();
    let of = |report: Report| if let Report::Order { job, status } = report { Some((job, status)) } else { None };
    rows.filter_map(|row| of(row.report)).collect()
}

#[test]
fn helper_may_be_silent_for_longer_than_its_work_takes() {
    let seconds = |order: Value| silence(&order).as_secs();
    assert_eq!((seconds(json!({})), seconds(json!({"timeoutSeconds": 30}))), (600, 630));
    assert_eq!(silence(&json!({ "timeoutSeconds": u64::MAX })).as_secs(), u64::MAX);
}

#[test]
fn first_order_is_at_work_and_the_others_are_told_to_wait() {
    let (_folder, mut cx) = Context::in_a_folder();
    let mut orders = sent(&mut cx, &["a", "b"]);
    for _ in 0..2 {
        orders.step(&mut cx).unwrap();
        assert!(orders.work.is_some() && orders.number == 1, "one helper at a time");
    }
    let waits = json!({"actionFlow": [{"action": WAITING_TURN}]});
    assert_eq!(reported(&cx), [("b".to_owned(), waits)]);
}

#[test]
fn order_without_a_body_makes_room_for_the_next() {
    let (_folder, mut cx) = Context::in_a_folder();
    let mut orders = sent(&mut cx, &["gone", "b"]);
    cx.store.write(|writer| writer.delete_object(&key("gone"), "gone")).unwrap();
    orders.step(&mut cx).unwrap();
    assert_eq!((orders.queue.first(), orders.work.is_some()), (Some("b"), true));
}

#[test]
fn order_that_changes_or_goes_ends_the_work_on_it_alone() {
    let (_folder, mut cx) = Context::in_a_folder();
    let mut orders = sent(&mut cx, &["a", "b", "c"]);
    orders.step(&mut cx).unwrap();
    assert!(orders.take(&key("b")) && orders.gone(&key("c")));
    assert!(orders.work.is_some(), "they were not at work");
    let other = ObjectKey { kind: "Device".to_owned(), ..key("a") };
    assert!(!orders.take(&other) && !orders.gone(&other) && orders.work.is_some());
    assert!(orders.take(&key("a")) && orders.work.is_none());
    assert_eq!(orders.queue.first(), Some("b"));
    orders.step(&mut cx).unwrap();
    assert!(orders.gone(&key("b")) && orders.work.is_none());
    assert_eq!(orders.queue.first(), Some("a"));
}

#[test]
fn only_the_present_helper_is_heard() {
    let (_folder, mut cx) = Context::in_a_folder();
    let mut orders = sent(&mut cx, &["a"]);
    orders.step(&mut cx).unwrap();
    let end = |number, why: Option<&str>| Heard { number, said: Said::End(why.map(str::to_owned)) };
    orders.heard(&mut cx, end(0, None)).unwrap();
    assert!(orders.work.is_some() && reported(&cx).is_empty());

    let status = json!({"phase": "InProgress"});
    orders.heard(&mut cx, Heard { number: 1, said: Said::Status(status.clone()) }).unwrap();
    assert_eq!(reported(&cx), [("a".to_owned(), status)]);
    orders.heard(&mut cx, end(1, Some("killed"))).unwrap();
    assert_eq!(reported(&cx), [("a".to_owned(), json!({"phase": "Pending", "reason": "killed"}))]);
    assert!(orders.work.is_none() && orders.wake().is_some(), "it goes on later");
}

#[test]
fn ended_order_has_no_further_turn() {
    let (_folder, mut cx) = Context::in_a_folder();
    let mut orders = sent(&mut cx, &["a"]);
    orders.step(&mut cx).unwrap();
    let said = Said::Status(json!({"phase": "Successful"}));
    orders.heard(&mut cx, Heard { number: 1, said }).unwrap();
    orders.heard(&mut cx, Heard { number: 1, said: Said::End(None) }).unwrap();
    assert_eq!((orders.work.is_some(), orders.queue.first(), orders.wake()), (false, None, None));
}
