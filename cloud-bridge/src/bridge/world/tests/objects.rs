//! ConfigMaps and Secrets that nodes receive, and the nodes in whose name they are read.

use super::*;

#[test]
fn a_pod_waits_for_what_it_names() {
    let mut world = world(&["a"]);
    assert_eq!(words(&world.pod_applied(pod("a", "p", &["m"]))), ["watch m for a"]);
    let effects = world.object_present(object("ConfigMap", "m", "m1"));
    assert_eq!(words(&effects), ["set a m m1", "set a p uid-p"]);
    assert_eq!(words(&world.pod_applied(pod("a", "q", &["m"]))), ["set a q uid-q"]);
}

#[test]
fn a_pod_does_not_wait_for_what_is_missing_or_cannot_be_read() {
    let mut world = world(&["a"]);
    world.pod_applied(pod("a", "p", &["m", "n"]));
    assert!(world.object_absent(&key("ConfigMap", "m")).is_empty());
    assert_eq!(words(&world.object_failed(&key("ConfigMap", "n"))), ["set a p uid-p"]);
    assert_eq!(words(&world.object_present(object("ConfigMap", "m", "m1"))), ["set a m m1"]);
}

#[test]
fn the_last_user_takes_the_object_along() {
    let mut world = world(&["a", "b"]);
    world.pod_applied(pod("a", "p", &["m"]));
    world.object_present(object("ConfigMap", "m", "m1"));
    world.pod_applied(pod("a", "q", &["m"]));
    assert_eq!(words(&world.pod_applied(pod("b", "r", &["m"]))), ["admit m for b"]);
    assert_eq!(words(&world.admitted("b", &key("ConfigMap", "m"))), ["set b m m1", "set b r uid-r"]);
    assert_eq!(words(&world.pod_deleted("a", &key("Pod", "p"), "uid-p")), ["remove a p uid-p"]);
    assert_eq!(
        words(&world.pod_deleted("a", &key("Pod", "q"), "uid-q")),
        ["remove a q uid-q", "withdraw a m m1", "watch m for b"]
    );
    assert!(!world.uses("a", &key("ConfigMap", "m")) && world.uses("b", &key("ConfigMap", "m")));
    assert_eq!(
        words(&world.pod_deleted("b", &key("Pod", "r"), "uid-r")),
        ["remove b r uid-r", "withdraw b m m1", "unwatch m"]
    );
}

#[test]
fn deleted_and_made_again_is_another_object() {
    let mut world = world(&["a"]);
    world.pod_applied(pod("a", "p", &["m"]));
    world.object_present(object("ConfigMap", "m", "m1"));
    assert_eq!(words(&world.object_present(object("ConfigMap", "m", "m2"))), ["remove a m m1", "set a m m2"]);
    assert_eq!(words(&world.object_absent(&key("ConfigMap", "m"))), ["remove a m m2"]);
    assert_eq!(words(&world.object_present(object("ConfigMap", "m", "m3"))), ["set a m m3"]);
    assert!(world.object_failed(&key("ConfigMap", "m")).is_empty(), "an error forgets nothing");
}

#[test]
fn a_new_container_may_name_more() {
    let mut world = world(&["a"]);
    world.pod_applied(pod("a", "p", &["m"]));
    world.object_absent(&key("ConfigMap", "m"));
    let effects = world.pod_applied(pod("a", "p", &["n"]));
    assert_eq!(words(&effects), ["watch n for a", "unwatch m"]);
}

#[test]
fn a_forgotten_node_leaves_no_watch_behind() {
    let mut world = world(&["a"]);
    world.pod_applied(pod("a", "p", &["m"]));
    assert_eq!(words(&world.drop_node("a")), ["unwatch m"]);
    assert!(!world.is_ours("a"));
}

/// The node was connected to another bridge, which knew more than the watches here have delivered.
#[test]
fn g12_a_node_from_elsewhere_is_told_nothing_before_all_was_read_anew() {
    let at = |name: &str, version, maps: &[&str]| BoundPod { version: Some(version), ..pod("a", name, maps) };
    let mut world = world(&["a", "b"]);
    world.pod_applied(at("p", 4, &["m"]));
    world.pod_applied(at("q", 5, &[]));
    world.pod_applied(BoundPod { node: "b".into(), ..at("r", 6, &["n"]) });
    world.object_present(object("ConfigMap", "m", "m1"));
    world.object_present(object("ConfigMap", "n", "n1"));

    world.refresh("a", 2);
    let early = world.round();
    world.refresh("a", 3);
    let round = world.round();
    assert_eq!(words(&world.seed("a", early, vec![], Some(9))), [""; 0], "asked before the hello");
    // A newer state of `p`, no `q` any more, and a new pod that names an object known only from another node.
    let mut changed = object("Pod", "p", "uid-p");
    changed.digest.digest = "newer".into();
    let newer = BoundPod { object: Told::new(changed), ..at("p", 8, &["m"]) };
    let effects = world.seed("a", round, vec![newer, at("s", 9, &["n"])], Some(10));
    let wanted = ["ask a q uid-q", "admit n for a", "watch m for a", "watch n for b", "set a p uid-p"];
    assert_eq!(words(&effects), wanted);
    assert_eq!(words(&world.admitted("a", &key("ConfigMap", "n"))), ["set a n n1", "set a s uid-s"]);
    assert_eq!(words(&world.pod_applied(at("p", 7, &["m"]))), [""; 0], "a label that was changed since");
    assert_eq!(words(&world.pod_gone("a", &key("Pod", "q"), "uid-q")), ["remove a q uid-q"]);
    assert_eq!(words(&world.object_present(object("ConfigMap", "n", "n2")))[..2], ["remove a n n1", "set a n n2"]);
    assert_eq!(words(&world.object_failed(&key("ConfigMap", "m"))), [""; 0], "not known to be as new as the node's");
    assert_eq!(words(&world.object_absent(&key("ConfigMap", "m"))), ["remove a m m1", "listed a 3"]);

    // Nodes that connect together share one reading of common objects.
    world.refresh("a", 4);
    world.refresh("b", 5);
    let round = world.round();
    let effects = world.seed("a", round, vec![at("s", 9, &["n"])], Some(12));
    assert!(words(&effects).contains(&"watch n for b".to_owned()), "{effects:?}");
    let effects = world.seed("b", round, vec![BoundPod { node: "b".into(), ..at("r", 6, &["n"]) }], Some(12));
    assert_eq!(words(&effects), ["set b r uid-r"]);
}

#[test]
fn watch_is_started_again_only_after_it_has_answered() {
    let mut world = world(&["a"]);
    assert_eq!(words(&world.pod_applied(pod("a", "p", &["m"]))), ["watch m for a"]);
    let round = hello(&mut world, "b");
    let effects = world.seed("b", round, vec![pod("b", "q", &["m"])], None);
    assert_eq!(words(&effects), ["admit m for b"], "its watch is under way");
    assert!(world.admitted("b", &key("ConfigMap", "m")).is_empty());
    let told = words(&world.object_present(object("ConfigMap", "m", "m1")));
    assert_eq!(told, ["set a m m1", "set b m m1", "set a p uid-p", "watch m for a", "set b q uid-q"]);
    let told = words(&world.object_present(object("ConfigMap", "m", "m1")));
    assert_eq!(told, ["set a m m1", "set b m m1", "listed b 1"]);
}

/// An object that is watched in the name of one node is sent to another only when the API allows it in that one's name.
#[test]
fn g27_the_right_of_one_node_is_no_other_ones() {
    let secret = key("ConfigMap", "m");
    let mut world = world(&["a", "evil"]);
    world.pod_applied(pod("a", "p", &["m"]));
    world.object_present(object("ConfigMap", "m", "m1"));
    assert_eq!(words(&world.pod_applied(pod("evil", "q", &["m"]))), ["admit m for evil"]);
    // Refused, asked again, and nothing is sent meanwhile; its pod, which belongs to it according to the API, no longer
    // waits.
    let (effects, again) = world.not_admitted("evil", &secret);
    assert_eq!((words(&effects), again), (vec!["set evil q uid-q".to_owned()], true));
    assert_eq!(words(&world.object_present(object("ConfigMap", "m", "m2"))), ["remove a m m1", "set a m m2"]);
    assert_eq!(words(&world.object_absent(&secret)), ["remove a m m2"]);
    world.object_present(object("ConfigMap", "m", "m3"));
    assert_eq!(words(&world.pod_deleted("evil", &key("Pod", "q"), "uid-q")), ["remove evil q uid-q"]);
    assert!(!world.not_admitted("evil", &secret).1, "it has no use for it any more");
    assert!(world.admitted("evil", &secret).is_empty(), "a late yes");

    // The list of a refused node is never complete: objects that it may hold from earlier are not deleted.
    world.refresh("evil", 2);
    let round = world.round();
    let effects = world.seed("evil", round, vec![pod("evil", "q", &["m"])], None);
    assert_eq!(words(&effects), ["admit m for evil", "watch m for a"]);
    world.object_present(object("ConfigMap", "m", "m3"));
    assert_eq!(words(&world.not_admitted("evil", &secret).0), ["set evil q uid-q"]);
    assert_eq!(words(&world.admitted("evil", &secret)), ["set evil m m3", "listed evil 2"]);
}

/// The first node reads for all. If the API refuses it, the others still get the object, and it gets the object once
/// the API allows it: the API refuses a node until it has seen the node's pod.
#[test]
fn g27_a_refused_reader_keeps_nothing_from_others() {
    let map = key("ConfigMap", "m");
    let mut world = world(&["a", "b", "evil"]);
    assert_eq!(words(&world.pod_applied(pod("evil", "q", &["m"]))), ["watch m for evil"]);
    assert_eq!(words(&world.object_refused(&map)), ["set evil q uid-q"], "nobody else wants it");
    assert_eq!(words(&world.pod_applied(pod("a", "p", &["m"]))), ["admit m for a"]);
    assert_eq!(words(&world.admitted("a", &map)), ["admit m for evil", "watch m for a"]);
    assert_eq!(words(&world.object_present(object("ConfigMap", "m", "m1"))), ["set a m m1", "set a p uid-p"]);
    assert!(world.not_admitted("evil", &map).1, "it is asked for again");
    assert_eq!(words(&world.admitted("evil", &map)), ["set evil m m1"]);

    // The other way round: others exist already, and wait.
    let mut world = self::world(&["a", "evil"]);
    world.pod_applied(pod("evil", "q", &["m"]));
    world.pod_applied(pod("a", "p", &["m"]));
    assert_eq!(words(&world.object_refused(&map)), ["admit m for evil", "watch m for a"]);
    let effects = world.object_present(object("ConfigMap", "m", "m1"));
    assert_eq!(words(&effects), ["set a m m1", "set a p uid-p", "set evil q uid-q"]);
    assert!(world.not_admitted("evil", &map).0.is_empty());
    // A refused reader is replaced, and the known object stays.
    let mut world = self::world(&["a", "b"]);
    world.pod_applied(pod("a", "p", &["m"]));
    world.object_present(object("ConfigMap", "m", "m1"));
    world.pod_applied(pod("b", "r", &["m"]));
    world.admitted("b", &map);
    assert_eq!(words(&world.object_refused(&map)), ["admit m for a", "watch m for b"]);
}

/// Objects that every node may read need no check.
#[test]
fn services_and_runtime_classes_are_for_all_nodes() {
    let mut world = world(&["a", "b"]);
    let with =
        |node: &str, name: &str| BoundPod { refs: [key("RuntimeClass", "quick")].into(), ..pod(node, name, &[]) };
    world.pod_applied(with("a", "p"));
    world.object_present(object("RuntimeClass", "quick", "q1"));
    assert_eq!(words(&world.pod_applied(with("b", "r"))), ["set b quick q1", "set b r uid-r"]);
}
