//! The guarantees of the link (`docs/guarantees.md`), each with the case that it describes. The random runs of `seeds`
//! and the exhaustive ones check the same invariants in all other cases.

use sampan_sim::rng::Rng;
use sampan_sim::world::{Options, World};

fn calm() -> World {
    World::calm(1, Options::plain())
}

/// 20 % of the frames lost, the link cut again and again, 500 changes: both sides agree in the end.
#[test]
fn g01_what_is_lost_on_the_way_comes_again() {
    let mut world = calm();
    let mut rng = Rng::new(2);
    for n in 0..500 {
        world.api.change(&mut rng);
        for _ in 0..6 {
            world.round();
        }
        // A frame can only be lost together with its connection.
        if rng.once_in(5) {
            world.cut();
        }
        if n % 30 == 0 {
            world.advance(std::time::Duration::from_secs(31));
        }
    }
    world.settle();
}

/// A full list of objects that the node holds: nothing is written, nothing is started.
#[test]
fn g02_what_comes_twice_changes_nothing() {
    let mut world = calm();
    let (starts, running) = (world.device.starts, world.device.running());
    for _ in 0..3 {
        world.restart_bridge(0);
        world.settle();
        world.device.crash(world.now);
        world.settle();
    }
    assert_eq!((world.device.starts, world.device.running()), (starts, running));
}

/// Same name, another uid: a deletion, then a creation. (`device::check` asserts it, and the order, in every run.)
#[test]
fn g03_a_replaced_object_is_a_deletion_and_a_creation() {
    let mut world = calm();
    let before = world.device.running();
    world.cut();
    world.api.delete_pod("a");
    world.api.create_pod("a", vec!["f".to_owned()]);
    world.settle();
    assert_eq!(world.device.running().len(), before.len());
    assert_ne!(world.device.running(), before);
}

/// The node reconnects to a bridge whose watches have delivered nothing since it left. Meanwhile another bridge has
/// sent it newer states, a pod unknown here, and the deletion of a known one. (`device::check` asserts that nothing is
/// undone.)
#[test]
fn g03_a_bridge_whose_watches_are_behind_undoes_nothing() {
    let mut world = World::calm(6, Options { bridges: 2, ..Options::plain() });
    world.move_to(0);
    world.settle();
    world.bridges[0].stalled = true;
    world.move_to(1);
    world.api.update_map("e");
    world.api.update_pod("a", |_| {});
    world.api.delete_pod("c");
    world.api.create_pod("d", vec!["f".to_owned()]);
    world.run();
    assert_eq!(world.differs(), None, "the other bridge knows all");
    world.move_to(0);
    world.run();
    assert_eq!(world.bridges[0].resumed, Some(false));
    let held = |world: &World| world.device.store().held().unwrap();
    let before = held(&world);
    world.settle();
    assert_eq!(held(&world), before, "what the watches tell at last is known");
}

/// The bridge numbers changes itself: resource versions are opaque texts here, not numbers.
#[test]
fn g04_resource_versions_are_opaque() {
    let mut world = calm();
    let first = world.bridges[0].state.seq();
    world.api.update_pod("a", |pod| pod.rv = 3);
    world.api.update_pod("a", |pod| pod.rv = 1);
    world.settle();
    assert!(world.bridges[0].state.seq() > first);
}

#[test]
fn g05_a_resume_with_nothing_new_costs_less_than_2_kb() {
    let mut world = calm();
    let (down, up) = world.reconnect();
    assert!(down + up < 2048, "{down} bytes down, {up} up");
    assert_eq!(world.bridges[0].resumed, Some(true));
    world.cut();
    world.api.create_map("g", 100);
    world.api.create_pod("d", vec!["g".to_owned()]);
    while world.bridges[0].follow(&world.api, &mut world.rng) {}
    let (down, _) = world.fresh();
    assert!(down < 4096, "{down} bytes for one pod and one ConfigMap");
    assert_eq!(world.bridges[0].resumed, Some(true));
}

/// A bridge without state of the node sends a list, without the bodies that the node holds.
#[test]
fn g06_a_full_list_moves_only_what_differs() {
    let mut world = calm();
    world.api.create_map("g", 50_000);
    world.api.create_pod("d", vec!["g".to_owned()]);
    world.settle();
    world.restart_bridge(0);
    world.api.delete_pod("b");
    world.settle();
    assert_eq!(world.bridges[0].resumed, Some(false));
    // First without a change in between, then all over again.
    world.restart_bridge(0);
    let (down, up) = world.fresh();
    assert!(down + up < 4096, "{down} bytes down, {up} up for a list of what is held");
    assert_eq!(world.differs(), None);
}

/// A pod that was created and deleted while the node was offline never starts. One that was deleted while it was
/// offline is stopped. The same holds if the bridge restarts meanwhile and loses every tombstone.
#[test]
fn g07_tombstones_outlive_the_absence_of_either_side() {
    for restart in [false, true] {
        let mut world = calm();
        let starts = world.device.starts;
        world.away();
        world.api.delete_pod("a");
        world.api.create_pod("d", Vec::new());
        while world.bridges[0].follow(&world.api, &mut world.rng) {}
        world.api.delete_pod("d");
        if restart {
            world.restart_bridge(0);
        }
        world.settle();
        assert_eq!(world.device.starts, starts, "what was deleted meanwhile has been started");
        assert_eq!(world.device.running().len(), 2);
    }
}

#[test]
fn g08_a_reinstalled_or_rolled_back_device_converges() {
    for tombstones in [4, 1000] {
        let mut world = World::calm(3, Options { rollbacks: true, tombstones, ..Options::plain() });
        world.device.take_image();
        for n in 0..20 {
            world.api.delete_pod("a");
            world.api.create_pod("a", vec![["e", "f"][n % 2].to_owned()]);
            world.api.update_pod("b", |_| {});
            world.settle();
        }
        world.api.delete_pod("c");
        world.settle();
        world.roll_back();
        world.settle();
        world.device.reinstall(world.now);
        world.cut();
        world.settle();
    }
}

/// One object that cannot be applied does not delay others, and its deletion is honoured.
#[test]
fn g09_a_poison_object_blocks_no_other() {
    let mut world = calm();
    world.api.create_pod("d", vec!["f".to_owned()]);
    world.api.update_pod("d", |pod| pod.poison = true);
    world.api.update_pod("a", |pod| pod.poison = true);
    world.api.delete_pod("b");
    world.api.create_pod("b", Vec::new());
    world.settle();
    let bodies = world.api.pods["b"].uid.clone();
    assert!(world.device.running().contains(&bodies));
    assert!(world.device.running().contains(&world.api.pods["a"].uid), "what ran goes on as it was");
    for name in ["a", "d"] {
        world.api.update_pod(name, |pod| pod.deleting = true);
    }
    world.settle();
    assert!(!world.api.pods.contains_key("a") && !world.api.pods.contains_key("d"));
}

/// A status that was reported while no bridge was reachable, before the daemon died, arrives.
#[test]
fn g10_reports_survive_both_sides() {
    let mut world = calm();
    world.api.down = true;
    world.api.update_pod("a", |_| {});
    world.api.create_pod("d", Vec::new());
    world.api.down = false;
    while world.bridges[0].follow(&world.api, &mut world.rng) {}
    world.api.down = true;
    world.run();
    assert!(!world.device.store().outbox().unwrap().is_empty(), "it waits here");
    world.device.crash(world.now);
    world.restart_bridge(0);
    world.settle();
    let uid = &world.api.pods["d"].uid;
    assert_eq!(world.api.statuses.get(uid), world.device.reported.get(uid));
}

/// The old connection is not yet known to be dead when the node is already connected to another bridge: later writes of
/// the old bridge are refused. (`Api::write_status` asserts that no status is older than one written.)
#[test]
fn g11_a_fenced_connection_writes_nothing() {
    for seed in 0..200 {
        let mut world = World::calm(seed, Options { bridges: 2, ..Options::plain() });
        for _ in 0..6 {
            world.api.update_pod("a", |_| {});
            let which = world.rng.below(2);
            for _ in 0..world.rng.below(20) {
                world.round();
            }
            world.move_to(which);
        }
        world.settle();
    }
}

/// An empty list, a list cut short, another cluster: nothing is deleted. (`device::check` asserts it in every run.)
#[test]
fn g12_only_a_tombstone_or_a_whole_list_deletes() {
    let mut world = World::calm(4, Options { foreign: true, ..Options::plain() });
    let held = world.device.store().held().unwrap();
    for _ in 0..3 {
        world.bridges[0].relist(&world.api, true);
        world.run();
        world.to_foreign();
        assert_eq!(world.device.store().held().unwrap(), held);
    }
    world.settle();
    assert_eq!(world.device.store().held().unwrap(), held);
}

/// Bodies far larger than a frame are sent in slices; `line::check` checks the size of every frame.
#[test]
fn g19_a_body_over_the_frame_size_travels_in_slices() {
    let mut world = calm();
    world.api.create_map("g", 300_000);
    world.api.create_pod("d", vec!["g".to_owned()]);
    world.settle();
    let body = world.device.store().object("ConfigMap", "ns", "g").unwrap().unwrap();
    assert_eq!(body["data"]["pad"].as_str().unwrap().len(), 900_000);
}

/// Hellos without the newer fields, messages of later versions in both directions.
#[test]
fn g21_peers_of_other_versions_are_served() {
    for seed in 0..40 {
        let mut world = World::with(Rng::new(seed), Options { skew: true, ..Options::plain() });
        for _ in 0..400 {
            world.step();
        }
        world.settle();
    }
}
