//! The helper that speaks with devices, `edge-devices`, as the daemon sees it: a program of its own that outlives the daemon,
//! and is there only where `device-twin` is configured. Knows nothing of the store, of the link or of what a twin is.
//!
//! | file | owns |
//! |---|---|
//! | `check` | whether its settings are right |
//! | `client` | a helper that runs and is connected |
//! | `lines` | its messages as lines of a socket |

pub mod check;
pub mod client;
pub mod lines;
