//! Tests of `room`.

use super::*;

/// A sixteenth of the room on a node.
const UNIT: usize = NODE / 16;

fn key(namespace: &str, name: &str) -> Arc<ObjectKey> {
    Arc::new(ObjectKey { kind: "ConfigMap".into(), namespace: namespace.into(), name: name.into() })
}

/// Number of the first names that have room on these nodes in turn.
fn named(rooms: &mut Rooms, nodes: &[&str], count: usize) -> usize {
    let take = |at: usize| rooms.take(nodes[at % nodes.len()], &key("n", &format!("x{at}")), 0);
    (0..count).map(take).filter(|place| *place == Place::Whole).count()
}

#[test]
fn names_have_a_bounded_room_though_no_object_exists() {
    let mut rooms = Rooms::default();
    assert_eq!(named(&mut rooms, &["a"], 1_900), NODE / NAME);
    assert_eq!(rooms.take("a", &key("n", "x0"), 0), Place::Whole, "it has its room");
    assert_eq!(rooms.take("a", &key("n", "y"), 0), Place::Nowhere);
    assert!(rooms.waits("a", &key("n", "y")) && rooms.is_short("a", "n") && !rooms.is_short("b", "n"));
    assert_eq!(rooms.take("a", &key("m", "y"), 0), Place::Whole, "another namespace");
    rooms.leave("a", &key("n", "x0"));
    let filled = rooms.fill("n");
    assert_eq!(filled.len(), 1, "{filled:?}");
    assert!(!rooms.waits("a", &filled[0].1));
}

#[test]
fn small_texts_have_room_beside_all_names() {
    let mut rooms = Rooms::default();
    let nodes: Vec<String> = (0..40).map(|at| format!("node-{at}")).collect();
    let root = key("n", "kube-root-ca.crt");
    let first = rooms.take(&nodes[0], &root, 0);
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let count = named(&mut rooms, &nodes, 4_000);
    assert!(first == Place::Whole && count < 4_000, "the namespace is full of names that were not read");
    for at in 0..count {
        let place = rooms.take(nodes[at % nodes.len()], &key("n", &format!("x{at}")), SMALL);
        assert_eq!(place, Place::Whole, "{at}");
    }
    assert!(nodes.iter().all(|node| rooms.take(node, &root, SMALL) == Place::Whole), "each pod names it");
    assert!(rooms.0["n"].used <= rooms.0["n"].limit());
}

#[test]
fn names_on_many_nodes_share_the_room_of_the_namespace() {
    let nodes: Vec<String> = (0..40).map(|at| format!("node-{at}")).collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let limit = ALL.0 + nodes.len() * ALL.1;
    assert_eq!(named(&mut Rooms::default(), &nodes, 76_000), limit / NAME);
    let mut rooms = Rooms::default();
    let large = |node: &str, at: usize| key("n", &format!("{node}-{at}"));
    let mut whole = 0;
    for node in nodes.iter().copied() {
        whole += (0..15).filter(|at| rooms.take(node, &large(node, *at), UNIT) == Place::Whole).count();
    }
    assert!(whole <= limit / UNIT && rooms.0["n"].used <= limit, "{whole}");
}

#[test]
fn large_fleet_with_small_objects_has_room() {
    let mut rooms = Rooms::default();
    for at in 0..10_000 {
        let node = format!("node-{at}");
        assert_eq!(rooms.take(&node, &key("n", &node), 16 << 10), Place::Whole);
        assert_eq!(rooms.take(&node, &key("n", "shared"), UNIT), Place::Whole);
    }
    assert_eq!(rooms.0["n"].used, 10_000 * size(16 << 10) + size(UNIT), "one that is shared counts once");
}

#[test]
fn room_is_of_each_node_and_namespace() {
    let mut rooms = Rooms::default();
    let more = SMALL + 1;
    assert_eq!(rooms.take("a", &key("n", "all"), NODE - 2 * NAME + SMALL), Place::Whole);
    assert_eq!(rooms.take("a", &key("n", "more"), more), Place::Name);
    assert_eq!(rooms.take("a", &key("n", "third"), 0), Place::Nowhere);
    assert_eq!(rooms.take("a", &key("m", "more"), more), Place::Whole);
    assert_eq!(rooms.take("b", &key("n", "more"), more), Place::Whole);
    assert!(rooms.waits("a", &key("n", "more")) && !rooms.waits("b", &key("n", "more")));
    let free = Arc::new(ObjectKey { kind: "RuntimeClass".into(), ..ObjectKey::clone(&key("n", "quick")) });
    assert_eq!(rooms.take("a", &free, NODE), Place::Whole, "every node may read it");
}

#[test]
fn room_that_comes_back_is_filled() {
    let mut rooms = Rooms::default();
    let half = NODE / 2 - 4 * NAME;
    let on_a = |name: &str| ("a".to_owned(), key("n", name));
    for (name, text) in [("all", NODE - 5 * NAME), ("v", half), ("w", NODE), ("x", half), ("y", NAME)] {
        let place = rooms.take("a", &key("n", name), text);
        assert_eq!(place, if name == "all" { Place::Whole } else { Place::Name }, "{name}");
    }
    assert!(rooms.fill("n").is_empty());
    assert_eq!(rooms.take("a", &key("n", "all"), half), Place::Whole, "it has shrunk");
    assert_eq!(rooms.fill("n"), [on_a("v"), on_a("y")], "the others do not fit beside those");
    rooms.leave("a", &key("n", "v"));
    assert_eq!(rooms.fill("n"), [on_a("x")]);
    assert!(rooms.fill("n").is_empty() && rooms.waits("a", &key("n", "w")));
}

#[test]
fn nothing_is_looked_through_before_room_comes_back() {
    let mut rooms = Rooms::default();
    assert_eq!(rooms.take("a", &key("n", "all"), NODE - 8 * NAME), Place::Whole);
    assert_eq!(rooms.take("a", &key("n", "more"), NODE), Place::Name);
    assert!(rooms.0["n"].may_fill() && rooms.fill("n").is_empty());
    assert_eq!(rooms.take("a", &key("n", "more"), NODE / 2), Place::Name);
    assert_eq!(rooms.take("a", &key("n", "small"), 0), Place::Whole);
    assert!(!rooms.0["n"].may_fill(), "what waits cannot fit");
    for _ in 0..2 {
        assert_eq!(rooms.take("a", &key("n", "all"), NODE / 4), Place::Whole);
    }
    assert_eq!(rooms.fill("n"), [("a".to_owned(), key("n", "more"))]);
    rooms.leave("a", &key("n", "small"));
    assert!(rooms.0["n"].freed);
}

#[test]
fn room_that_one_node_gives_back_is_for_the_others() {
    let mut rooms = Rooms::default();
    for node in ["a", "b"] {
        assert_eq!(rooms.take(node, &key("n", node), 12 * UNIT), Place::Whole);
    }
    assert_eq!(rooms.take("c", &key("n", "c"), 12 * UNIT), Place::Name);
    rooms.leave("a", &key("n", "a"));
    assert_eq!(rooms.fill("n"), [("c".to_owned(), key("n", "c"))]);
}

#[test]
fn room_that_shrinks_takes_nothing_away() {
    let mut rooms = Rooms::default();
    let last = ALL.0 + 3 * ALL.1 - 12 * UNIT - 3 * NAME;
    for (node, text) in [("a", 0), ("b", 12 * UNIT), ("c", last)] {
        assert_eq!(rooms.take(node, &key("n", node), text), Place::Whole, "{node}");
    }
    rooms.leave("a", &key("n", "a"));
    assert!(rooms.0["n"].used > rooms.0["n"].limit());
    assert_eq!(rooms.take("c", &key("n", "c"), last), Place::Whole);
    assert_eq!(rooms.take("c", &key("n", "c"), last + 1), Place::Name, "it has grown");
}

#[test]
fn nothing_stays_of_objects_that_went() {
    let mut rooms = Rooms::default();
    assert_eq!(rooms.take("a", &key("n", "all"), NODE - 2 * NAME), Place::Whole);
    assert_eq!(rooms.take("a", &key("n", "more"), NODE), Place::Name);
    assert_eq!(rooms.take("a", &key("n", "third"), NODE), Place::Nowhere);
    rooms.leave("b", &key("n", "all"));
    for name in ["more", "third", "all"] {
        rooms.leave("a", &key("n", name));
    }
    assert!(rooms.0.is_empty());
}
