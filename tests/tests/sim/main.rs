//! Both sessions of the link on one virtual clock and one seed: cuts at any frame, silence, half-open
//! connections, crashes around commits, bridge restarts, forgotten tombstones, and what must hold all the same.
//!
//! A failure prints its seed; `SIM_SEED=N cargo test -p sampan-tests --test sim` runs that one again.

mod api;
mod cloud;
mod edge;
mod rng;
mod world;

use rng::Rng;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};
use world::World;

/// Seeds that once found something, and some more.
const FIXED: std::ops::Range<u64> = 0..60;

/// Time for fresh seeds, in seconds; `SIM_SECONDS=600` for a night's run.
const FRESH_S: u64 = 4;

const STEPS: usize = 600;

fn run(seed: u64) {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.settle();
    }));
    if let Err(panic) = result {
        // To the test's captured output, beside the panic's own message.
        println_seed(seed);
        resume_unwind(panic);
    }
}

#[allow(clippy::print_stderr)]
fn println_seed(seed: u64) {
    eprintln!("failed with SIM_SEED={seed}");
}

#[test]
fn both_sides_agree_after_any_trouble() {
    let number = |name| std::env::var(name).ok().and_then(|s| s.parse().ok());
    if let Some(seed) = number("SIM_SEED") {
        return run(seed);
    }
    let limit = Duration::from_secs(number("SIM_SECONDS").unwrap_or(FRESH_S));
    FIXED.for_each(run);
    let mut fresh = Rng::new(RandomState::new().hash_one(0));
    let started = Instant::now();
    while started.elapsed() < limit {
        run(fresh.next());
    }
}

/// Every cut and every crash of a short script, one after the other.
#[test]
fn every_single_cut_and_crash() {
    let mut places = 1;
    let mut place = 0;
    while place < places {
        for crash in [false, true] {
            let mut world = World::calm(7);
            world.script();
            let frames = world.settle_with_trouble_at(place, crash);
            places = places.max(frames);
            world.settle();
        }
        place += 1;
    }
    assert!(places > 20, "the script is longer than {places} frames");
}

/// Lists of several frames, and hundreds of objects that an empty list puts in doubt.
#[test]
fn crowds() {
    for seed in 0..3 {
        let mut world = World::new(seed);
        world.crowd();
        world.settle();
    }
}
