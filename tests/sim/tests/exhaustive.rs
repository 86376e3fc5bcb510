//! Short scripts, with every cut and every crash at every place, one after the other.

use sampan_sim::device::Crash;
use sampan_sim::world::{Options, World};

/// A fault that happens once, after a number of rounds.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Cut,
    Crash(Crash),
    PowerCut,
    BridgeRestart,
    /// The node moves to the other bridge, and the first does not notice.
    OtherBridge,
}

const TROUBLES: [Trouble; 8] = [
    Trouble::Cut,
    Trouble::Crash(Crash::BeforeCommit),
    Trouble::Crash(Crash::AfterCommit),
    Trouble::Crash(Crash::BeforeSteps),
    Trouble::Crash(Crash::AfterStep),
    Trouble::PowerCut,
    Trouble::BridgeRestart,
    Trouble::OtherBridge,
];

fn make(world: &mut World, trouble: Trouble) {
    match trouble {
        Trouble::Cut => world.cut(),
        Trouble::Crash(point @ (Crash::BeforeCommit | Crash::AfterCommit)) => {
            let count = world.device.daemon.as_ref().map_or(0, |daemon| daemon.inbox.len());
            world.commit(count, Some(point));
        }
        Trouble::Crash(point) => drop(world.turn(Some(point))),
        Trouble::PowerCut => world.power_cut(),
        Trouble::BridgeRestart => world.restart_bridge(0),
        Trouble::OtherBridge => world.move_to(1),
    }
}

/// Deletes a pod, replaces one under its name, creates one, changes a ConfigMap, and replaces one.
fn script(world: &mut World) {
    let options = Options { bridges: 2, power_cuts: true, ..Options::plain() };
    *world = World::calm(7, options);
    world.api.delete_pod("a");
    world.api.delete_pod("b");
    world.api.create_pod("b", vec!["e".to_owned()]);
    world.api.update_pod("c", |pod| pod.deleting = true);
    world.api.create_pod("d", vec!["f".to_owned()]);
    world.api.delete_map("e");
    world.api.create_map("e", 3);
}

#[test]
fn g01_every_cut_and_every_crash_at_every_place_of_a_short_script() {
    let mut world = World::with(sampan_sim::rng::Rng::new(0), Options::plain());
    script(&mut world);
    let places = world.run();
    assert!(places > 20, "the script has {places} places only");
    for trouble in TROUBLES {
        for place in 0..=places {
            script(&mut world);
            // Counts the places of the run without faults; after a fault the rounds differ.
            for _ in 0..place {
                world.round();
            }
            make(&mut world, trouble);
            let at = std::panic::AssertUnwindSafe(|| world.settle());
            if let Err(panic) = std::panic::catch_unwind(at) {
                panic!("{trouble:?} at {place}: {:?}", panic.downcast_ref::<String>());
            }
        }
    }
}
