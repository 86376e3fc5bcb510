//! The helper that speaks with devices, `edge-devices`, as the daemon sees it: a program of its own that outlives the daemon,
//! and is there only where `device-twin` is configured. Knows nothing of the store, of the link or of what a twin is.
//!
//! | file | owns |
//! |---|---|
//! | `check` | whether its settings are right |

use sampan_devices_control::FromHelper;

use crate::helper::client;

pub mod check;

/// An event of this helper.
pub type Heard = client::Heard<FromHelper>;
