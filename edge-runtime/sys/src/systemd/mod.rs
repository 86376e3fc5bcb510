//! Units of systemd: slices started with their values, changed and stopped, through systemd's own socket. Knows the
//! words of D-Bus that these calls need and nothing of pods.
//!
//! | file | owns |
//! |---|---|
//! | `wire` | messages as bytes, both ways |
//! | `manager` | one connection: calls, and the jobs they start |
//! | `worker` | what is asked for, one after the other beside the loop |

mod manager;
mod wire;
mod worker;

use std::io;
use std::path::Path;

pub use worker::{Pending, Units, Work};

/// `sd_booted(3)`.
const BOOTED: &str = "/run/systemd/system";

/// Whether systemd is the first process of this machine.
pub fn is_init() -> bool {
    Path::new(BOOTED).is_dir()
}

/// One property of a unit (systemd.resource-control(5), by the names of its D-Bus interface).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    pub name: &'static str,
    pub value: Value,
}

impl Property {
    /// Whether a unit that is there can be given it: the values of its cgroup.
    fn can_change(&self) -> bool {
        matches!(self.value, Value::Number(_) | Value::Bytes(_))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Flag(bool),
    /// All ones: no limit.
    Number(u64),
    Text(String),
    Bytes(Vec<u8>),
}

/// Error of a request to systemd.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    #[error("systemd cannot be reached at {}: {source}", path.display())]
    Connect { path: std::path::PathBuf, source: io::Error },
    #[error("the connection to systemd broke: {0}")]
    Lost(#[from] io::Error),
    #[error("systemd does not let us in: it answered {0:?}")]
    Denied(String),
    #[error("systemd's answer is not understood: {0}")]
    Garbage(&'static str),
    /// An error that it gave, by its D-Bus name.
    #[error("systemd refused: {message} ({name})")]
    Refused { name: String, message: String },
    #[error("systemd's job for unit {unit} ended as {result:?}")]
    Job { unit: String, result: String },
    #[error("systemd did not do it within {0} s")]
    Late(u64),
}
