//! Which tokens are asked for and when, and which pods wait for them.

use super::*;

fn now(wall: &str) -> Now {
    Now { wall: wall.parse().expect("a time"), mono: Mono(1_000), boot_id: "b".into() }
}

#[test]
fn g26_a_token_is_used_past_its_end_until_there_is_another() {
    let time = |text: &str| text.parse().expect("a time");
    let held = Held { token: "t".into(), issued: time("2026-01-01T00:00:00Z"), expires: time("2026-01-01T01:00:00Z") };
    let key = key("");
    let mut tokens = Tokens::default();
    put(&mut tokens, "uid", key.clone(), Slot { held: Some(held.clone()), ..Slot::default() });
    // By a clock that cannot be right it is asked for, and nothing is thrown away.
    for (wall, due) in [("1970-01-01T00:01:00Z", true), ("2026-01-01T00:30:00Z", false), ("2036-01-01T00:00:00Z", true)]
    {
        assert_eq!(slot_of(&tokens, &key).is_due(&now(wall)), due, "{wall}");
        assert!(!tokens.lacks("uid"), "no pod waits for one that it has");
    }
    let slot = tokens.slots.get_mut("uid").and_then(|of| of.get_mut(&key)).expect("there");
    (slot.asked, slot.refusals, slot.not_before) = (Some(1), 3, Some(Mono(9_000)));
    tokens.disconnected();
    assert_eq!(slot_of(&tokens, &key).held.as_ref().map(|held| &held.token), Some(&held.token), "nor does a refusal");
    assert!(!slot_of(&tokens, &key).is_due(&now("2036-01-01T00:00:00Z")), "asked again after the pause");
    tokens.forget("uid");
    assert!(tokens.slots.is_empty(), "it goes with its pod");
}

#[test]
fn token_is_renewed_while_the_clock_is_behind() {
    let time = |text: &str| text.parse::<Timestamp>().expect("a time");
    let held = Held { token: "t".into(), issued: time("2026-01-01T00:00:00Z"), expires: time("2026-01-01T01:00:00Z") };
    let key = key("");
    let slot = Slot { held: Some(held.clone()), came: Some(Mono(1_000)), ..Slot::default() };
    let at = |wall: &str, minutes: u64| Now { mono: Mono(1_000 + minutes * 60_000), ..now(wall) };
    for wall in ["1970-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2036-01-01T00:00:00Z"] {
        assert!(!slot.is_due(&at(wall, 47)), "{wall}: it has come to this process");
        assert!(slot.is_due(&at(wall, 48)), "{wall}");
    }
    // A token from the store, by the bridge's clock.
    let mut tokens = Tokens::default();
    put(&mut tokens, "uid", key.clone(), Slot { held: Some(held), ..Slot::default() });
    tokens.time_told(Some(time("2026-01-01T00:10:00Z")), Mono(1_000));
    let behind = tokens.true_time(at("2026-01-01T00:01:00Z", 30));
    assert_eq!((behind.wall, slot_of(&tokens, &key).is_due(&behind)), (time("2026-01-01T00:40:00Z"), false));
    assert!(slot_of(&tokens, &key).is_due(&tokens.true_time(at("2026-01-01T00:01:00Z", 40))));
}

fn key(audience: &str) -> Wanted {
    Wanted { audience: audience.to_owned(), seconds: 3600 }
}

/// Token of the pod `uid`.
fn slot_of<'a>(tokens: &'a Tokens, wanted: &Wanted) -> &'a Slot {
    tokens.slots.get("uid").and_then(|of| of.get(wanted)).expect("there")
}

fn put(tokens: &mut Tokens, uid: &str, wanted: Wanted, slot: Slot) {
    tokens.slots.get_or_default(uid.to_owned()).insert(wanted, slot);
}

fn held() -> Held {
    let time = |text: &str| text.parse().expect("a time");
    Held { token: "t".into(), issued: time("2026-01-01T00:00:00Z"), expires: time("2026-01-01T01:00:00Z") }
}

#[test]
fn refused_token_is_requested_less_and_less_often() {
    let mut slot = Slot::default();
    assert!(slot.is_due(&now("2026-01-01T00:00:00Z")), "one that is not there is due at once");
    for pause in [2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        slot.refused("why".into(), Mono(1_000));
        assert_eq!(slot.due(&now("2026-01-01T00:00:00Z")), Some(Mono(1_000 + pause * 1_000)), "{pause} s");
    }
    slot.refusals = u32::MAX - 1;
    slot.refused("why".into(), Mono(1_000));
    assert_eq!(slot.not_before, Some(Mono(301_000)));
    slot.asked = Some(1);
    assert_eq!(slot.due(&now("2026-01-01T00:00:00Z")), None, "the answer is on its way");
}

#[test]
fn refusal_never_brings_a_renewal_forward() {
    let slot = Slot { held: Some(held()), came: Some(Mono(1_000)), not_before: Some(Mono(3_000)), ..Slot::default() };
    let due = 1_000 + 48 * 60_000;
    assert_eq!(slot.due(&now("2026-01-01T00:00:00Z")), Some(Mono(due)));
    let late = Slot { not_before: Some(Mono(due + 1)), ..slot };
    assert_eq!(late.due(&now("2026-01-01T00:00:00Z")), Some(Mono(due + 1)));
}

#[test]
fn stored_token_is_looked_at_every_hour_because_the_clock_may_jump() {
    let slot = Slot {
        held: Some(Held { expires: "2026-01-03T00:00:00Z".parse().expect("a time"), ..held() }),
        ..Slot::default()
    };
    assert_eq!(slot.due(&now("2026-01-01T00:00:00Z")), Some(Mono(1_000 + 3_600_000)));
    assert_eq!(slot.due(&now("2026-01-01T23:59:59Z")), Some(Mono(2_000)));
    assert_eq!(slot.due(&now("2026-01-02T00:00:00Z")), Some(Mono(1_000)), "after a day at the latest");
}

#[test]
fn pod_waits_for_its_tokens_only_while_they_can_come() {
    let mut tokens = Tokens::default();
    let waits = |tokens: &mut Tokens, at| {
        tokens.waiting.insert("a".into(), Mono(6_000));
        let over = tokens.next_waited(Mono(at));
        assert_eq!(over.is_none(), tokens.waiting.contains_key("a"), "once");
        over.is_none()
    };
    assert!(!waits(&mut tokens, 0), "it lacks none");
    put(&mut tokens, "a", key(""), Slot { asked: Some(1), ..Slot::default() });
    put(&mut tokens, "other", key(""), Slot { not_before: Some(Mono(9_000)), ..Slot::default() });
    assert!(waits(&mut tokens, 0) && waits(&mut tokens, 5_999));
    assert!(!waits(&mut tokens, 6_000), "not for ever");
    put(&mut tokens, "a", key("vault"), Slot { held: Some(held()), ..Slot::default() });
    assert!(waits(&mut tokens, 0), "the other one is still missing");
    put(&mut tokens, "a", key("refused"), Slot { not_before: Some(Mono(9_000)), ..Slot::default() });
    assert!(!waits(&mut tokens, 0), "one will not come in time");
    tokens.waiting.insert("a".into(), Mono(6_000));
    tokens.forget("a");
    assert_eq!(tokens.next_waited(Mono(9_000)), None);
    assert!(tokens.slots.keys().eq(["other"]));
}

#[test]
fn pods_that_waited_are_prepared_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let cx = Context::for_tests(folder.path());
    let mut tokens = Tokens::default();
    assert_eq!(tokens.wake(&cx), None);
    let late = cx.mono().after(PATIENCE);
    for uid in ["a", "b"] {
        tokens.waiting.insert(uid.to_owned(), late);
    }
    put(&mut tokens, "b", key(""), Slot { asked: Some(1), ..Slot::default() });
    assert!(tokens.wake(&cx).is_some_and(|at| at < late), "one has all of its tokens");
    assert_eq!(tokens.next_waited(Mono(0)).as_deref(), Some("a"));
    assert_eq!((tokens.next_waited(Mono(0)), tokens.wake(&cx)), (None, Some(late)));
    assert_eq!(tokens.next_waited(late).as_deref(), Some("b"));
}

#[test]
fn tokens_that_come_together_are_stored_together() {
    let folder = tempfile::tempdir().unwrap();
    let mut cx = Context::for_tests(folder.path());
    let mut tokens = Tokens::default();
    for (id, uid) in (0..).zip(["a", "b", "gone", "refused"]) {
        put(&mut tokens, uid, key(""), Slot { asked: Some(id), ..Slot::default() });
    }
    let issued = || TokenAnswer::Issued {
        token: "t".into(),
        issued: "2026-01-01T00:00:00Z".into(),
        expires: "2026-01-01T01:00:00Z".into(),
    };
    (0..3).for_each(|id| tokens.answered(id, issued(), Mono(0)));
    tokens.answered(3, TokenAnswer::Refused { reason: "why".into() }, Mono(0));
    tokens.forget("gone");
    assert!(tokens.lacks("a") && !tokens.can_still_come("refused"), "no pod has one before it is stored");
    cx.store.refuse_writes(true);
    assert!(tokens.keep(&mut cx).is_err() && tokens.lacks("a"));
    cx.store.refuse_writes(false);
    (0..3).for_each(|id| tokens.answered(id, issued(), Mono(0)));
    assert!(tokens.keep(&mut cx).unwrap().iter().eq(["a", "b"]));
    assert!(cx.store.is_synced() && !tokens.lacks("a") && !tokens.lacks("b"));
    assert!(cx.store.token("b", &key("")).unwrap().is_some());
    assert!(cx.store.token("gone", &key("")).unwrap().is_none(), "its pod is gone");
    assert!(tokens.keep(&mut cx).unwrap().is_empty(), "once");
}

#[test]
fn pods_with_many_tokens_do_not_hold_up_the_node() {
    let mut tokens = Tokens::default();
    for uid in ["c", "b", "a"] {
        (0..40_000).for_each(|number| put(&mut tokens, uid, key(&format!("{number:05}")), Slot::default()));
    }
    // In one map of all pods they would move 1 TB, which takes longer than a suite may.
    tokens.forget("b");
    let pods: BTreeSet<&String> = each(&mut tokens.slots).map(|(uid, _, _)| uid).collect();
    assert!(pods.into_iter().eq(["a", "c"]));
    assert!(tokens.lacks("a") && !tokens.lacks("b"));
}

#[test]
fn pod_has_a_slot_for_each_token_that_its_volumes_ask_for_now() {
    use crate::node::pods::Entry;
    use crate::pod::record::PodRecord;
    use serde_json::json;
    let folder = tempfile::tempdir().unwrap();
    let mut cx = Context::for_tests(folder.path());
    let pod = |audiences: &[&str]| -> Pod {
        let source = |audience: &&str| json!({"serviceAccountToken": {"path": audience, "audience": audience, "expirationSeconds": 3600}});
        let sources: Vec<_> = audiences.iter().map(source).collect();
        let volumes = json!([{"name": "v", "projected": {"sources": sources}}]);
        serde_json::from_value(json!({"spec": {"containers": [], "volumes": volumes}})).unwrap()
    };
    for (uid, source) in [("api", PodSource::Api), ("static", PodSource::Static)] {
        let record = PodRecord::new(uid, "ns", uid, source, &cx.clock.now());
        cx.pods.insert(Entry::new(std::rc::Rc::default(), record));
    }
    let stored = key("stored");
    cx.store.write(|writer| writer.put_token("api", &stored, &held())).unwrap();
    let mut tokens = Tokens::default();
    tokens.want(&cx, "static", &pod(&["a"]));
    assert!(tokens.slots.is_empty(), "it has no service account");
    tokens.want(&cx, "api", &pod(&["a", "stored"]));
    let of_api = |tokens: &Tokens| -> Vec<(String, bool, u32)> {
        let of = tokens.slots.get("api").expect("there");
        of.iter().map(|(wanted, slot)| (wanted.audience.clone(), slot.held.is_none(), slot.refusals)).collect()
    };
    let one = |audience: &str, lacks: bool, refusals: u32| (audience.to_owned(), lacks, refusals);
    assert_eq!(of_api(&tokens), [one("a", true, 0), one("stored", false, 0)], "one is in the store");
    each(&mut tokens.slots).for_each(|(_, _, slot)| slot.refusals = 7);
    tokens.want(&cx, "api", &pod(&["a", "b"]));
    assert_eq!(of_api(&tokens), [one("a", true, 7), one("b", true, 0)], "what it still wants stays as it is");
    tokens.want(&cx, "api", &pod(&[]));
    assert!(tokens.slots.is_empty());
}
