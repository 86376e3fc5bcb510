//! The Unix socket for the daemon and clients: one JSON text per line. Parses lines; does not know their consequences.
//!
//! | file | owns |
//! |---|---|
//! | `connection` | one caller: what it says, what waits for it |
//! | `callers` | who is connected, and as what |

mod callers;
mod connection;

pub use callers::{Callers, Role};
pub use connection::{Heard, Said, accept};
