//! Reads the clocks. The only place that does, beside timers; everything else gets a [`Now`].

use std::rc::Rc;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::pod::clock::{Mono, Now};

/// The clocks of this boot.
#[derive(Clone)]
pub struct Clock {
    boot_id: Rc<str>,
}

/// The kernel's name for this boot.
///
/// # Errors
/// `/proc` is not mounted.
pub fn boot_id() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

impl Clock {
    /// # Errors
    /// `/proc` is not mounted.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { boot_id: boot_id()?.into() })
    }

    #[must_use]
    pub fn boot_id(&self) -> &Rc<str> {
        &self.boot_id
    }

    #[must_use]
    pub fn now(&self) -> Now {
        Now { wall: jiff::Timestamp::now(), mono: Self::mono(), boot_id: self.boot_id.clone() }
    }

    /// Time since boot, suspend included: a device that slept has aged.
    #[must_use]
    pub fn mono() -> Mono {
        // CLOCK_BOOTTIME exists since Linux 2.6.39 and cannot fail with a valid pointer.
        clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Mono(0), |time| Mono::from_duration(Duration::from(time)))
    }
}
