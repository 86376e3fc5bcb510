//! Large objects that nodes receive.

use super::*;

/// A ConfigMap with this many bytes of data.
fn sized(name: &str, bytes: usize) -> Object {
    Object { body: json!({"data": {"k": "x".repeat(bytes)}}), ..object("ConfigMap", name, name) }
}

/// An object of which sixteen fit into the room.
fn large(name: &str) -> Object {
    sized(name, (1 << 20) - 100)
}

/// A node with pods that name one object of almost the whole limit, and one of half the limit, which does not fit.
fn full() -> World {
    let mut world = world(&["a", "b"]);
    world.pod_applied(pod("a", "p", &["all"]));
    world.pod_applied(pod("a", "q", &["half"]));
    assert_eq!(words(&world.object_present(sized("all", 15 << 20))), ["set a all all", "set a p uid-p"]);
    assert_eq!(words(&world.object_present(sized("half", 8 << 20))), ["set a q uid-q"], "its pod does not wait");
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
        "small ones do not count"
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
    let told = |world: &mut World| words(&world.object_present(sized("half", 8 << 20)));
    let mut world = full();
    let effects = world.pod_deleted("a", &key("Pod", "p"), "uid-p");
    assert_eq!(words(&effects), ["remove a p uid-p", "withdraw a all all", "unwatch all", "watch half for a"]);
    assert_eq!(words(&world.pod_applied(pod("a", "r", &["half"]))), [""; 0], "it waits, as for one that comes");
    assert_eq!(told(&mut world), ["set a half half", "set a r uid-r"]);

    let mut world = full();
    assert_eq!(words(&world.object_present(sized("all", 10 << 20))), ["set a all all"], "not enough");
    assert_eq!(words(&world.object_present(sized("all", 7 << 20))), ["set a all all", "watch half for a"]);
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
    assert_eq!(words(&world.object_present(sized("half", 8 << 20))), ["set b half half", "set b s uid-s"]);
    // An object that is kept for another node is sent without a reading.
    let effects = world.pod_deleted("a", &key("Pod", "p"), "uid-p");
    assert_eq!(words(&effects), ["remove a p uid-p", "withdraw a all all", "unwatch all", "set a half half"]);
}

#[test]
fn object_that_grows_out_of_its_room_is_withdrawn() {
    let mut world = world(&["a"]);
    world.pod_applied(pod("a", "p", &["half", "more"]));
    world.object_present(sized("half", 8 << 20));
    assert_eq!(words(&world.object_present(sized("more", 8 << 20))), ["set a p uid-p"]);
    let effects = world.object_present(sized("half", 7 << 20));
    assert_eq!(words(&effects), ["set a half half", "watch more for a"]);
    assert_eq!(words(&world.object_present(sized("more", 8 << 20))), ["set a more more"]);
    assert_eq!(words(&world.object_present(sized("half", 9 << 20))), ["withdraw a half half"]);
    assert_eq!(words(&world.object_present(sized("half", 9 << 20))), [""; 0], "it was not told since");
}

#[test]
fn object_without_room_anywhere_is_dropped() {
    let mut world = full();
    world.pod_applied(pod("b", "s", &["half"]));
    world.admitted("b", &key("ConfigMap", "half"));
    world.object_present(sized("half", 8 << 20));
    let dropped = |world: &World| world.shared[&key("ConfigMap", "half")].value.objects().next().is_none();
    assert!(!dropped(&world));
    world.pod_deleted("b", &key("Pod", "s"), "uid-s");
    assert!(dropped(&world));
    world.drop_node("a");
    assert!(world.shared.is_empty());
}
