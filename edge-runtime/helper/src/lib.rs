//! Common parts of the helpers of a node that are programs of their own (`edge-devices`, `edge-api`, `edge-plugins`). Knows
//! no message of the daemon but the name of its first one.
//!
//! | file | owns |
//! |---|---|
//! | `program` | arguments in, exit code out |
//! | `confine` | the rights of the process |
//! | `socket` | the socket and that there is one helper behind it |
//! | `lines` | lines out of bytes, with a bound |
//! | `queue` | lines that wait for a caller, with a bound |
//!
//! The daemon's side is in `edge-runtime/src/helper`.

mod confine;
mod lines;
mod program;
mod queue;
mod socket;

pub use lines::{Lines, is_daemon};
pub use program::{Failed, Job, Program};
pub use queue::{Teller, Waiting, queue};
pub use socket::{Listening, listen};
