//! Options of a world: which faults may happen. Does not know how they happen.

use cloud_bridge::bridge::ServiceScope;

use crate::rng::Rng;

/// Which faults may happen. Chosen by the seed, so that each fault is also seen without the others.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub bridges: usize,
    pub tombstones: usize,
    pub power_cuts: bool,
    pub disk_full: bool,
    pub outages: bool,
    /// Peers of other versions: hellos without new fields, unknown messages.
    pub skew: bool,
    /// Whether a bridge of another cluster answers at times.
    pub foreign: bool,
    pub rollbacks: bool,
    pub clock_jumps: bool,
    /// Scope of the Services that a node receives; `None`: without Services.
    pub services: Option<ServiceScope>,
    /// Whether the node has devices.
    pub devices: bool,
    /// Whether the node sometimes starts with Services enabled instead of disabled, or vice versa.
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

    /// Whether a seed has Services: drawn separately, so that everything else is as without them.
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
