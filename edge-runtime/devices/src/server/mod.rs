//! The Unix socket for the daemon and clients: one JSON text per line. Parses lines; does not know their consequences.
//!
//! | file | owns |
//! |---|---|
//! | `socket` | the socket and that there is one helper behind it |
//! | `lines` | lines out of bytes, with a bound |
//! | `connection` | one caller: what it says, what waits for it |
//! | `callers` | who is connected, and as what |

mod callers;
mod connection;
mod lines;
mod socket;

pub use callers::{Callers, Role};
pub use connection::{Heard, Said, accept};
pub use socket::{Listening, listen};
