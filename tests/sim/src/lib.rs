//! Simulation of the link: one device, one or two bridges and a Kubernetes API on one virtual clock and one seed.
//!
//! Real: both session cores and the codec, the bridge's `World`, `Lanes` and fencing rules, the device's store (SQLite
//! on a file), intake, pod records, reconcile and status. Modelled: the API server, the network, the container runtime.
//!
//! | module | owns |
//! |---|---|
//! | [`api`] | the truth, and what must hold of everything written into it |
//! | [`bridge`] | a bridge process |
//! | [`views`] | what it follows and tells of Services |
//! | [`twins`] | Devices in the API, what a bridge tells of them and writes |
//! | [`line`] | a connection as the network has it |
//! | [`device`] | the daemon, its disk and its containers |
//! | [`world`] | all of them, the faults, the comparison at rest |
//!
//! `docs/guarantees.md` says how to reproduce a seed.

pub mod api;
pub mod bridge;
pub mod device;
pub mod line;
pub mod rng;
pub mod twins;
pub mod views;
pub mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use cloud_bridge::bridge::ServiceScope;
use world::{Options, World};

/// Random things that happen in one run.
pub const STEPS: usize = 700;

/// Runs one seed: trouble, then rest, then a reconnect that must cost nothing. Prints the seed of a failure.
///
/// # Panics
/// Something does not hold.
pub fn run(seed: u64) {
    run_with(seed, Options::services(seed), Options::devices(seed));
}

/// Same as [`run`], with Services in this scope or without any, with devices or without.
///
/// # Panics
/// Something does not hold.
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

/// Into the test's captured output, beside the panic's own message.
#[allow(clippy::print_stderr)]
fn told(seed: u64) {
    eprintln!("failed: SAMPAN_SIM_SEED={seed} cargo test -p sampan-sim --test seeds");
}

/// Events for the search for the cause of a failure: printed when `SAMPAN_SIM_TRACE` is set.
#[allow(clippy::print_stderr)]
pub fn trace(text: impl FnOnce() -> String) {
    static WANTED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    if *WANTED.get_or_init(|| std::env::var_os("SAMPAN_SIM_TRACE").is_some()) {
        eprintln!("{}", text());
    }
}
