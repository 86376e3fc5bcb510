//! The Unix socket at which the daemon calls. Knows no plugin.
//!
//! | file | owns |
//! |---|---|
//! | `socket` | the socket and that there is one helper behind it |
//! | `lines` | lines out of bytes, with a bound |
//! | `callers` | who is connected, and what the helper works with |
//! | `talk` | one connection |

mod callers;
mod lines;
mod socket;
mod talk;

pub(crate) use callers::Callers;
pub(crate) use socket::listen;
pub(crate) use talk::accept;
