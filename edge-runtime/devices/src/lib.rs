//! The helper of a node that speaks with devices, as a library: what twins are, and the sockets around that.
//!
//! | module | owns |
//! |---|---|
//! | `twins` | what is known of devices, and what follows from news: no I/O, no clock |
//! | `mqtt` | a connection to a broker |
//! | `dmi` | calls of mappers and to mappers |
//! | `server` | the unix socket at which the daemon and clients call |
//! | `rules` | messages, requests and calls of rules |
//! | `bound` | a TCP socket that listens |
//! | `journal` | what mappers hold, for who comes after a helper that was killed |
//! | `run` | the loop that joins them |

mod bound;
pub mod dmi;
#[doc(hidden)]
pub mod fuzz;
mod journal;
pub mod mqtt;
pub mod rules;
pub mod run;
pub mod server;
pub mod twins;
