//! Simulation of the link: one device, one or two bridges and a Kubernetes API on one virtual clock and one seed.
//!
//! Real: both session cores and the codec, the bridge's `World`, `Lanes` and fencing rules, the device's store (SQLite
//! on a file), intake, pod records, reconcile and status. Modelled: the API server, the network, the container runtime.
//!
//! | module | owns |
//! |---|---|
//! | [`api`] | the Kubernetes API, and the invariants of what is written into it |
//! | [`bridge`] | a bridge process |
//! | [`views`] | Services as a bridge follows and sends them |
//! | [`twins`] | Devices in the API, and what a bridge sends and writes of them |
//! | [`line`] | a connection with the faults of a network |
//! | [`device`] | the daemon, its disk and its containers |
//! | [`world`] | all of them, the faults, the comparison at rest |
//!
//! `docs/guarantees.md` says how to reproduce a seed.

pub mod api;
pub mod bridge;
pub mod device;
pub mod line;
pub mod rng;
mod trace;
pub mod twins;
pub mod views;
pub mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use cloud_bridge::bridge::ServiceScope;
use world::{Options, World};

/// Number of random events of one run.
pub const STEPS: usize = 700;

/// Runs one seed: faults, then rest, then a reconnect that must cost nothing. Prints the seed of a failure.
///
/// # Panics
/// An invariant is violated.
pub fn run(seed: u64) {
    run_with(seed, Options::services(seed), Options::devices(seed));
}

/// Same as [`run`], with Services in this scope or without any, with devices or without.
///
/// # Panics
/// An invariant is violated.
pub fn run_with(seed: u64, services: Option<ServiceScope>, devices: bool) {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(seed, services, devices);
        for _ in 0..STEPS {
            world.step();
        }
        world.settle();
        let (down, up) = world.reconnect();
        assert!(down + up < 2048, "{down} bytes down and {up} up for nothing new");
        assert_eq!(world.differs(), None);
    }));
    if let Err(panic) = result {
        told(seed);
        resume_unwind(panic);
    }
}

/// Goes into the test's captured output, beside the panic's own message.
#[allow(clippy::print_stderr)]
fn told(seed: u64) {
    eprintln!("failed: SAMPAN_SIM_SEED={seed} cargo test -p sampan-sim --test seeds");
}
