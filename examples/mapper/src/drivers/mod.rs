//! Interface between hardware and the mapper: points that are read and written. A driver is a pure part, which
//! interprets configuration and bytes, and as little I/O as possible.
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
    /// The device does not answer, or its answers are invalid.
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
    /// Whether hardware keeps a written value after this process has ended.
    const KEEPS: bool;
    /// Position of a property, and the encoding of its value.
    type Point: Clone + PartialEq + fmt::Debug;

    /// `config`: the property's `visitors.configData`, over the Device's `protocol.configData`.
    ///
    /// # Errors
    /// The missing or wrong key, as text for people.
    fn point(config: &Config, access: Access) -> Result<Self::Point, String>;

    /// # Errors
    /// The point cannot have this value, for people.
    fn fits(point: &Self::Point, value: &Value) -> Result<(), String>;

    /// Whether the value `held` by the hardware equals `wanted`, in the encoding of the point.
    fn is_same(point: &Self::Point, held: &Value, wanted: &Value) -> bool;

    fn read(&self, point: &Self::Point) -> impl Future<Output = Result<Value, Fault>>;

    fn write(&self, point: &Self::Point, value: &Value) -> impl Future<Output = Result<(), Fault>>;

    /// Sets the points of all devices: resources of others are released.
    fn retain(&self, points: &[&Self::Point]);
}
