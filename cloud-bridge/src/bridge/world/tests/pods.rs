//! Pods that nodes receive, and when their lists are complete.

use super::*;
use crate::bridge::world::pods::MAX_BURIED;

#[test]
fn withheld_lists_are_told_without_their_end() {
    let mut world = World::default();
    world.withhold_lists(true);
    let round = hello(&mut world, "a");
    assert_eq!(words(&world.seed("a", round, vec![], None)), [""; 0]);
    world.withhold_lists(false);
    let round = hello(&mut world, "a");
    assert_eq!(words(&world.seed("a", round, vec![], None)), ["listed a 1"]);
    let mut world = World::default();
    world.withhold_lists(true);
    let round = hello(&mut world, "a");
    world.seed("a", round, vec![], None);
    assert_eq!(words(&world.pod_applied(pod("a", "p", &[]))), ["set a p uid-p"]);
}

/// A waiting pod takes the memory of its text, and no second text is made of it.
#[test]
fn pod_waits_as_the_text_that_is_sent() {
    let mut world = world(&["a"]);
    let read = pod("a", "p", &["m"]);
    world.pod_applied(read.clone());
    let effects = world.object_absent(&key("ConfigMap", "m"));
    let [Effect::Set { object, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert!(Arc::ptr_eq(object, &read.object));
}

#[test]
fn pods_of_other_nodes_are_nobodys_business() {
    let mut world = world(&["a"]);
    assert!(world.pod_applied(pod("z", "p", &["m"])).is_empty());
    assert!(world.pod_deleted("z", &key("Pod", "p"), "uid-p").is_empty());
}

#[test]
fn a_list_is_complete_only_with_every_object_it_needs() {
    let mut world = World::default();
    let round = hello(&mut world, "a");
    assert_eq!(
        words(&world.seed("a", round, vec![pod("a", "p", &["m", "n"])], None)),
        ["watch m for a", "watch n for a"]
    );
    assert!(world.object_present(object("ConfigMap", "m", "m1")).iter().all(|e| !matches!(e, Effect::Listed { .. })));
    let effects = world.object_failed(&key("ConfigMap", "n"));
    assert_eq!(words(&effects), ["set a p uid-p"], "an unreadable object may be held by the node: no list yet");
    assert_eq!(words(&world.object_absent(&key("ConfigMap", "n"))), ["listed a 1"]);
}

#[test]
fn news_before_the_seed_is_newer_than_the_seed() {
    let mut world = World::default();
    let round = hello(&mut world, "a");
    world.pod_deleted("a", &key("Pod", "p"), "uid-p");
    let mut newer = pod("a", "q", &[]);
    newer.generation = 2;
    world.pod_applied(newer);
    let effects = world.seed("a", round, vec![pod("a", "p", &[]), pod("a", "q", &[])], None);
    assert_eq!(words(&effects), ["listed a 1"]);
}

#[test]
fn late_watch_events_do_not_turn_a_pod_back() {
    let mut world = World::default();
    let round = hello(&mut world, "a");
    let mut ending = pod("a", "p", &[]);
    ending.terminating = true;
    world.seed("a", round, vec![ending], None);
    assert!(world.pod_applied(pod("a", "p", &[])).is_empty());
}

#[test]
fn what_a_new_list_lacks_is_named_for_looking_up() {
    let mut world = world(&["a"]);
    world.pod_applied(pod("a", "p", &[]));
    world.pod_applied(pod("a", "q", &[]));
    assert_eq!(world.nodes(), ["a"]);
    world.relisted("a");
    world.pod_applied(pod("a", "p", &[]));
    world.listed("a", "uid-p");
    assert_eq!(world.missing("a"), [(key("Pod", "q"), "uid-q".to_owned())]);
    assert!(world.missing("b").is_empty());
}

/// A node's own list may be older than the list of all pods: pods that are only in the former are looked up.
#[test]
fn pod_from_another_reading_is_missing_in_a_list() {
    let mut world = world(&["a"]);
    world.relisted("a");
    world.pod_found(pod("a", "p", &[]));
    world.pod_applied(pod("a", "q", &[]));
    world.listed("a", "uid-q");
    world.pod_found(BoundPod { generation: 2, ..pod("a", "q", &[]) });
    assert_eq!(world.missing("a"), [(key("Pod", "p"), "uid-p".to_owned())]);
}

#[test]
fn a_mirror_that_somebody_deletes_is_finished_at_once() {
    let mut world = world(&["a"]);
    let mut mirror = pod("a", "s-a", &[]);
    mirror.mirror_of = Some("static".into());
    world.pod_applied(mirror.clone());
    mirror.terminating = true;
    assert_eq!(words(&world.pod_applied(mirror)), ["finish a s-a", "set a s-a uid-s-a"]);
}

#[test]
fn a_node_that_comes_back_gets_its_pods_called_ready_again() {
    let mut world = world(&["a"]);
    let mut unready = pod("a", "p", &[]);
    unready.falsely_unready = true;
    assert_eq!(words(&world.pod_applied(unready)), ["restore a p", "set a p uid-p"]);
    assert_eq!(words(&world.connected("a")), ["restore a p"]);
    world.pod_applied(pod("a", "p", &[]));
    assert!(world.connected("a").is_empty());
}

#[test]
fn failed_effect_is_repeated_while_its_pod_needs_it() {
    let mut world = world(&["a"]);
    let unready = |version| BoundPod { falsely_unready: true, version: Some(version), ..pod("a", "p", &[]) };
    let old = world.pod_applied(unready(1)).remove(0);
    assert_eq!(words(std::slice::from_ref(&old)), ["restore a p"]);
    assert_eq!(world.still_needed(old.clone()), Some(old.clone()));
    let effect = world.pod_applied(unready(2)).remove(0);
    assert_eq!(world.still_needed(old), None, "the new version has its own");
    assert_eq!(world.still_needed(effect.clone()), Some(effect.clone()));
    world.pod_applied(pod("a", "p", &[]));
    assert_eq!(world.still_needed(effect), None, "it is ready");
    let mirror = BoundPod { mirror_of: Some("static".into()), terminating: true, ..pod("a", "s-a", &[]) };
    let effect = world.pod_applied(mirror).remove(0);
    assert_eq!(world.still_needed(effect.clone()), Some(effect.clone()));
    world.pod_deleted("a", &key("Pod", "s-a"), "uid-s-a");
    assert_eq!(world.still_needed(effect), None, "it is deleted");
}

/// The pods of a node were read after its pod was replaced, while the watch is late: it still shows the old pod of the
/// same name.
#[test]
fn g03_what_a_watch_tells_late_does_not_bury_the_successor() {
    let named = |uid: &str| {
        let mut pod = pod("a", "p", &[]);
        pod.object = Told::new(object("Pod", "p", uid));
        pod
    };
    let mut world = World::default();
    let round = hello(&mut world, "a");
    assert_eq!(words(&world.seed("a", round, vec![named("new")], None)), ["set a p new", "listed a 1"]);
    assert_eq!(words(&world.pod_applied(named("old"))), ["ask a p new"]);
    assert!(world.pod_applied(named("old")).is_empty(), "asked once");
    assert_eq!(words(&world.pod_applied(named("new"))), ["set a p new"], "it was found");
    assert_eq!(words(&world.pod_deleted("a", &key("Pod", "p"), "old")), ["remove a p old"]);

    // The other way round; the list is not complete before the result is known.
    let mut world = World::default();
    let round = hello(&mut world, "a");
    assert_eq!(words(&world.pod_applied(named("old"))), ["set a p old"]);
    assert_eq!(words(&world.seed("a", round, vec![named("new")], None)), ["ask a p old"]);
    assert_eq!(words(&world.pod_deleted("a", &key("Pod", "p"), "old")), ["remove a p old", "listed a 1"]);
    assert_eq!(words(&world.pod_applied(named("new"))), ["set a p new"]);
}

/// A request by name is ahead of the watch: later events of the watch about the pod do not restore it.
#[test]
fn g07_what_was_found_gone_is_not_brought_back_by_a_late_watch() {
    let mut world = World::default();
    let round = hello(&mut world, "a");
    world.seed("a", round, vec![pod("a", "p", &[])], None);
    assert_eq!(words(&world.pod_gone("a", &key("Pod", "p"), "uid-p")), ["remove a p uid-p"]);
    assert!(world.pod_applied(pod("a", "p", &[])).is_empty());
    assert_eq!(words(&world.pod_deleted("a", &key("Pod", "p"), "uid-p")), ["remove a p uid-p"]);
    world.pod_gone("a", &key("Pod", "p"), "uid-p");
    world.relisted("a");
    world.listed("a", "uid-p");
    assert!(world.missing("a").is_empty());
    assert!(world.nodes["a"].buried.contains_key("uid-p"), "the list is from before");
    world.relisted("a");
    assert!(world.missing("a").is_empty());
    assert!(world.nodes["a"].buried.is_empty(), "a list without it is the last word");
}

#[test]
fn g07_what_the_watch_tells_from_before_the_list_is_asked_for() {
    let at = |name: &str, version| BoundPod { version: Some(version), ..pod("a", name, &[]) };
    let mut world = World::default();
    let round = hello(&mut world, "a");
    // The watch is ahead with `q`, and behind with `p`, which the list of version 10 does not show any more.
    assert_eq!(words(&world.pod_applied(at("p", 4))), ["set a p uid-p"]);
    assert_eq!(words(&world.pod_applied(at("q", 12))), ["set a q uid-q"]);
    assert_eq!(words(&world.seed("a", round, vec![at("r", 9)], Some(10))), ["ask a p uid-p", "set a r uid-r"]);
    let effects = world.pod_gone("a", &key("Pod", "p"), "uid-p");
    assert_eq!(words(&effects), ["remove a p uid-p", "listed a 1"]);
    assert_eq!(words(&world.pod_applied(at("p", 5))), [""; 0], "it is known to be gone");

    // A pod that the watch did not show before the list.
    assert_eq!(words(&world.pod_applied(at("s", 7))), ["ask a s uid-s"]);
    assert_eq!(words(&world.pod_applied(at("s", 8))), [""; 0], "asked already");
    assert_eq!(words(&world.pod_found(at("s", 8))), ["set a s uid-s"], "the list lacked it by mistake");
    assert_eq!(words(&world.pod_applied(at("t", 11))), ["set a t uid-t"], "newer than the list");
    world.relisted("a");
    assert_eq!(words(&world.pod_applied(at("u", 3))), ["set a u uid-u"], "an API that was put back to an older state");
}

/// A node asks about pods that never existed: the memory for the answers is limited.
#[test]
fn g17_what_a_node_asks_about_is_remembered_up_to_a_bound() {
    let mut world = world(&["a"]);
    for number in 0..MAX_BURIED + 100 {
        world.pod_gone("a", &key("Pod", "p"), &number.to_string());
    }
    assert_eq!(world.nodes["a"].buried.len(), MAX_BURIED);
}
