//! What hardware is to the rest of the mapper: points that are read and written. A driver is a pure part, what a configuration and
//! bytes mean, and as little I/O as can be.
//!
//! | file | drives |
//! |---|---|
//! | `gpio` | lines of a GPIO character device |
//! | `onewire` | thermometers on a 1-wire bus, by sysfs |
//! | `modbus` | registers and coils, over TCP or a serial line |

pub mod gpio;
pub mod modbus;
pub mod onewire;

use std::fmt;

use crate::config_data::Config;
use crate::value::Value;

/// Why hardware was not read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing of the device answers, or nothing that can be believed.
    Silent(String),
    /// The device answers, but has no such value.
    Refused(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Silent(why) | Self::Refused(why)) = self;
        out.write_str(why)
    }
}

/// How a property is meant to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    ReadOnly,
    ReadWrite,
}

/// Drives all devices of one protocol. Each read and write ends in a few seconds, whatever the hardware does.
pub trait Driver: Sized + 'static {
    /// `protocolName` of the Devices.
    const PROTOCOL: &'static str;
    /// Hardware has what was written after this process has ended, too.
    const KEEPS: bool;
    /// Where a property is, and how its value stands there.
    type Point: Clone + PartialEq + fmt::Debug;

    /// `config`: the property's `visitors.configData`, over the Device's `protocol.configData`.
    ///
    /// # Errors
    /// What is missing or wrong in it, for people.
    fn point(config: &Config, access: Access) -> Result<Self::Point, String>;

    /// # Errors
    /// The point cannot have this value, for people.
    fn fits(point: &Self::Point, value: &Value) -> Result<(), String>;

    /// Whether hardware that has `held` has what is `wanted`, in the form that the point gives it.
    fn is_same(point: &Self::Point, held: &Value, wanted: &Value) -> bool;

    fn read(&self, point: &Self::Point) -> impl Future<Output = Result<Value, Fault>>;

    fn write(&self, point: &Self::Point, value: &Value) -> impl Future<Output = Result<(), Fault>>;

    /// These are the points of all devices: what others needed is let go.
    fn retain(&self, points: &[&Self::Point]);
}
