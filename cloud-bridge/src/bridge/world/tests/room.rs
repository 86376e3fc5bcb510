//! Room for the objects that pods name.

use super::*;

/// A sixteenth of the room on a node.
const UNIT: usize = super::super::room::NODE / 16;
const NAMES: [&str; 6] = ["x0", "x1", "x2", "x3", "x4", "x5"];

/// A ConfigMap with this many bytes of data.
fn sized(name: &str, bytes: usize) -> Object {
    Object { body: json!({"data": {"k": "x".repeat(bytes)}}), ..object("ConfigMap", name, name) }
}

/// An object of which sixteen fit into the room, and one more name.
fn large(name: &str) -> Object {
    sized(name, UNIT - (16 << 10))
}

/// A node with pods that name one object of almost the whole limit, and one of half the limit, which does not fit.
fn full() -> World {
    let mut world = world(&["a", "b"]);
    world.pod_applied(pod("a", "p", &["all"]));
    world.pod_applied(pod("a", "q", &["half"]));
    assert_eq!(words(&world.object_present(sized("all", 15 * UNIT))), ["set a all all", "set a p uid-p"]);
    assert_eq!(words(&world.object_present(sized("half", 8 * UNIT))), ["set a q uid-q"], "its pod does not wait");
    world
}

#[test]
fn pods_of_a_node_name_a_bounded_number_of_bytes() {
    let mut world = world(&["a", "b"]);
    let names: Vec<String> = (0..17).map(|at| format!("m{at:02}")).collect();
    world.pod_applied(pod("a", "p", &names.iter().map(String::as_str).collect::<Vec<_>>()));
    for name in &names[..16] {
        assert!(words(&world.object_present(large(name))).contains(&format!("set a {name} {name}")));
    }
    let effects = world.object_present(large("m16"));
    assert_eq!(words(&effects), ["set a p uid-p"], "it is as good as missing: the pod does not wait for it");
    assert!(words(&world.object_present(large("m00"))).contains(&"set a m00 m00".to_owned()), "it has its room");
    assert_eq!(
        words(&world.object_present(object("ConfigMap", "m16", "m16"))),
        ["set a m16 m16"],
        "it has become small"
    );
    assert_eq!(
        words(&world.object_present(large("m16"))),
        ["withdraw a m16 m16"],
        "it lives on, and may be told again"
    );
    assert_eq!(words(&world.object_absent(&key("ConfigMap", "m00"))), ["remove a m00 m00", "watch m16 for a"]);
    assert_eq!(words(&world.object_present(large("m16"))), ["set a m16 m16"]);
    world.pod_applied(pod("b", "q", &["other"]));
    assert!(words(&world.object_present(large("other"))).contains(&"set b other other".to_owned()));
}

#[test]
fn object_is_read_again_when_room_comes_back() {
    let told = |world: &mut World| words(&world.object_present(sized("half", 8 * UNIT)));
    let mut world = full();
    let effects = world.pod_deleted("a", &key("Pod", "p"), "uid-p");
    assert_eq!(words(&effects), ["remove a p uid-p", "withdraw a all all", "unwatch all", "watch half for a"]);
    assert_eq!(words(&world.pod_applied(pod("a", "r", &["half"]))), [""; 0], "it waits, as for one that comes");
    assert_eq!(told(&mut world), ["set a half half", "set a r uid-r"]);

    let mut world = full();
    assert_eq!(words(&world.object_present(sized("all", 10 * UNIT))), ["set a all all"], "not enough");
    assert_eq!(words(&world.object_present(sized("all", 7 * UNIT))), ["set a all all", "watch half for a"]);
    assert_eq!(told(&mut world), ["set a half half"]);

    let mut world = full();
    assert_eq!(words(&world.object_absent(&key("ConfigMap", "all"))), ["remove a all all", "watch half for a"]);
    assert_eq!(told(&mut world), ["set a half half"]);

    let mut world = full();
    let effects = world.pod_applied(pod("a", "p", &[]));
    assert_eq!(words(&effects), ["withdraw a all all", "unwatch all", "watch half for a", "set a p uid-p"]);
}

#[test]
fn each_node_has_room_of_its_own() {
    let half = key("ConfigMap", "half");
    let mut world = full();
    assert_eq!(words(&world.pod_applied(pod("b", "s", &["half"]))), ["admit half for b"]);
    assert_eq!(words(&world.admitted("b", &half)), ["watch half for a"], "nobody had room for it");
    assert_eq!(words(&world.object_present(sized("half", 8 * UNIT))), ["set b half half", "set b s uid-s"]);
    // An object that is kept for another node is sent without a reading.
    let effects = world.pod_deleted("a", &key("Pod", "p"), "uid-p");
    assert_eq!(words(&effects), ["remove a p uid-p", "withdraw a all all", "unwatch all", "set a half half"]);
}

#[test]
fn object_that_grows_out_of_its_room_is_withdrawn() {
    let mut world = world(&["a"]);
    world.pod_applied(pod("a", "p", &["half", "more"]));
    world.object_present(sized("half", 8 * UNIT));
    assert_eq!(words(&world.object_present(sized("more", 8 * UNIT))), ["set a p uid-p"]);
    let effects = world.object_present(sized("half", 7 * UNIT));
    assert_eq!(words(&effects), ["set a half half", "watch more for a"]);
    assert_eq!(words(&world.object_present(sized("more", 8 * UNIT))), ["set a more more"]);
    assert_eq!(words(&world.object_present(sized("half", 9 * UNIT))), ["withdraw a half half"]);
    assert_eq!(words(&world.object_present(sized("half", 9 * UNIT))), [""; 0], "it was not told since");
}

#[test]
fn object_without_room_anywhere_is_dropped() {
    let mut world = full();
    world.pod_applied(pod("b", "s", &["half"]));
    world.admitted("b", &key("ConfigMap", "half"));
    world.object_present(sized("half", 8 * UNIT));
    let dropped = |world: &World| world.shared[&key("ConfigMap", "half")].value.objects().next().is_none();
    assert!(!dropped(&world));
    world.pod_deleted("b", &key("Pod", "s"), "uid-s");
    assert!(dropped(&world));
    world.drop_node("a");
    assert!(world.shared.is_empty());
}

/// A node with a large object, and with a pod that names six more. There is room for four names.
fn named() -> World {
    let mut world = world(&["a", "b"]);
    world.pod_applied(pod("a", "p", &["all"]));
    world.object_present(almost_all());
    let effects = world.pod_applied(pod("a", "q", &NAMES));
    assert_eq!(words(&effects), ["watch x0 for a", "watch x1 for a", "watch x2 for a", "watch x3 for a"]);
    world
}

fn almost_all() -> Object {
    sized("all", 16 * UNIT - (68 << 10) - 100)
}

/// The API says that the four do not exist; returns the effects of the last answer.
fn nothing_found(world: &mut World) -> Vec<String> {
    let mut last = Vec::new();
    for name in &NAMES[..4] {
        last = words(&world.object_absent(&key("ConfigMap", name)));
    }
    last
}

#[test]
fn name_without_room_delays_neither_pod_nor_list() {
    let mut world = named();
    assert_eq!(nothing_found(&mut world), ["set a q uid-q"]);
    world.refresh("a", 2);
    let round = world.round();
    let effects = world.seed("a", round, vec![pod("a", "p", &["all"]), pod("a", "q", &NAMES)], None);
    let watched = words(&effects).into_iter().filter(|word| word.starts_with("watch"));
    assert_eq!(watched.count(), 5, "all that is watched is read again");
    world.object_present(almost_all());
    assert_eq!(nothing_found(&mut world), ["listed a 2"]);
}

#[test]
fn name_is_asked_for_when_room_comes_back() {
    let mut world = named();
    nothing_found(&mut world);
    assert_eq!(words(&world.pod_applied(pod("b", "r", &["x5"]))), ["watch x5 for b"]);
    let effects = world.object_present(object("ConfigMap", "x5", "u"));
    assert_eq!(words(&effects), ["set b x5 u", "set b r uid-r"], "the other node was not admitted");
    let effects = world.pod_deleted("a", &key("Pod", "p"), "uid-p");
    let told = ["remove a p uid-p", "withdraw a all all", "unwatch all", "watch x4 for a", "admit x5 for a"];
    assert_eq!(words(&effects), told);
    assert_eq!(words(&world.admitted("a", &key("ConfigMap", "x5"))), ["set a x5 u"]);
}

#[test]
fn watch_ends_when_no_node_has_room_for_the_name() {
    let mut world = named();
    let x5 = key("ConfigMap", "x5");
    world.pod_applied(pod("b", "r", &["x5"]));
    world.object_present(object("ConfigMap", "x5", "u"));
    let effects = world.pod_deleted("b", &key("Pod", "r"), "uid-r");
    assert_eq!(words(&effects), ["remove b r uid-r", "withdraw b x5 u", "unwatch x5"]);
    assert_eq!(words(&world.admitted("a", &x5)), [""; 0], "an answer to an earlier question");
    assert!(!world.not_admitted("a", &x5).1, "it is not asked again");
    let effects = world.pod_deleted("a", &key("Pod", "p"), "uid-p");
    assert_eq!(words(&effects)[3..], ["watch x4 for a", "watch x5 for a"]);
    let effects = world.object_present(object("ConfigMap", "x5", "u"));
    assert_eq!(words(&effects), ["set a x5 u"], "its pod waits for others");
}

#[test]
fn room_that_a_new_node_adds_is_for_the_others() {
    let mut world = world(&["a", "b", "c"]);
    let second = || sized("m-b", 12 * UNIT + (264 << 10));
    world.pod_applied(pod("a", "p-a", &["m-a"]));
    world.pod_applied(pod("b", "p-b", &["m-b"]));
    assert_eq!(words(&world.object_present(sized("m-a", 12 * UNIT))), ["set a m-a m-a", "set a p-a uid-p-a"]);
    assert_eq!(words(&world.object_present(second())), ["set b p-b uid-p-b"], "some 32 KiB are missing");
    assert_eq!(words(&world.pod_applied(pod("c", "p-c", &["x"]))), ["watch x for c", "watch m-b for b"]);
    assert_eq!(words(&world.object_present(second())), ["set b m-b m-b"]);
}

#[test]
fn room_of_an_object_stays_taken_while_it_is_read() {
    let mut world = world(&["a", "b", "c"]);
    for (node, name, map) in [("a", "p", "all"), ("a", "q", "half"), ("c", "r", "other")] {
        world.pod_applied(pod(node, name, &[map]));
    }
    for (map, sixteenths) in [("all", 11), ("half", 12), ("other", 14)] {
        world.object_present(sized(map, sixteenths * UNIT));
    }
    let effects = world.pod_deleted("a", &key("Pod", "p"), "uid-p");
    assert_eq!(words(&effects)[3..], ["watch half for a"], "then there is too little for the other");
    assert_eq!(words(&world.pod_applied(pod("b", "s", &["half"]))), ["admit half for b"]);
    assert_eq!(words(&world.object_present(sized("half", 12 * UNIT))), ["set a half half"]);
}

#[test]
fn room_of_a_dropped_node_is_for_the_others() {
    let mut world = world(&["a", "b", "c"]);
    for node in ["a", "b", "c"] {
        let map = format!("m-{node}");
        world.pod_applied(pod(node, &format!("p-{node}"), &[map.as_str()]));
    }
    let third = || sized("m-c", 12 * UNIT);
    for name in ["m-a", "m-b"] {
        assert_eq!(words(&world.object_present(sized(name, 12 * UNIT))).len(), 2);
    }
    assert_eq!(words(&world.object_present(third())), ["set c p-c uid-p-c"], "the namespace has no room left");
    assert_eq!(words(&world.drop_node("a")), ["unwatch m-a", "watch m-c for c"]);
    assert_eq!(words(&world.object_present(third())), ["set c m-c m-c"]);
    for node in ["b", "c"] {
        world.drop_node(node);
    }
    assert!(world.shared.is_empty() && !world.rooms.is_short("c", "ns"));
}
