//! The Unix socket at which the daemon calls, twice: for control and for streams. Knows no request.
//!
//! | file | owns |
//! |---|---|
//! | `callers` | who is connected, and what the helper works with |
//! | `talk` | one connection |

mod callers;
mod talk;

pub(crate) use callers::Callers;
pub(crate) use talk::accept;
