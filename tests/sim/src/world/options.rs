//! What a world may meet; knows nothing of how it happens.

use cloud_bridge::bridge::ServiceScope;

use crate::rng::Rng;

/// What a world may meet. Chosen by the seed, so that each fault is also seen without the others.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub bridges: usize,
    pub tombstones: usize,
    pub power_cuts: bool,
    pub disk_full: bool,
    pub outages: bool,
    /// Peers of other versions: hellos without new fields, unknown messages.
    pub skew: bool,
    /// A bridge of another cluster answers at times.
    pub foreign: bool,
    pub rollbacks: bool,
    pub clock_jumps: bool,
    /// There are Services; which of them a node is told of.
    pub services: Option<ServiceScope>,
    /// There are devices behind the node.
    pub devices: bool,
    /// At times the node starts with Services on where they were off, or the other way round.
    pub reconfigured: bool,
}

impl Options {
    pub fn of(rng: &mut Rng) -> Self {
        Self {
            bridges: 1 + rng.below(2),
            tombstones: [4, 8, 1000][rng.below(3)],
            power_cuts: rng.once_in(3),
            disk_full: rng.once_in(3),
            outages: rng.once_in(2),
            skew: rng.once_in(2),
            foreign: rng.once_in(4),
            rollbacks: rng.once_in(4),
            clock_jumps: rng.once_in(2),
            services: None,
            devices: false,
            reconfigured: false,
        }
    }

    /// Whether a seed has Services: drawn beside everything else, which is as it is without them.
    pub fn services(seed: u64) -> Option<ServiceScope> {
        let scopes = [None, Some(ServiceScope::Namespaces), Some(ServiceScope::Site)];
        scopes[Rng::new(!seed).below(3)]
    }

    /// Whether a seed has devices, drawn in the same way.
    pub fn devices(seed: u64) -> bool {
        Rng::new(seed.rotate_left(32)).once_in(2)
    }

    /// Cuts and crashes only.
    pub fn plain() -> Self {
        Self {
            bridges: 1,
            tombstones: 1000,
            power_cuts: false,
            disk_full: false,
            outages: false,
            skew: false,
            foreign: false,
            rollbacks: false,
            clock_jumps: false,
            services: None,
            devices: false,
            reconfigured: false,
        }
    }
}
