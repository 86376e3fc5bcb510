//! Helpers that are programs of their own: a helper lies beside the daemon's program, outlives the daemon, and listens at a
//! Unix socket, where both sides send JSON texts, one per line. Knows of a protocol only what all have in common.
//!
//! | file | owns |
//! |---|---|
//! | `programs` | which helpers there are |
//! | `client` | a helper that runs and is connected |
//! | `lines` | messages as lines of a socket |
//!
//! What all protocols have in common:
//!
//! | from | line | meaning |
//! |---|---|---|
//! | daemon | version, node and settings | its first line; a helper of another version or with other settings ends, and any other one takes this connection as its only one |
//! | helper | `{"hello":{"version":N}}` | its first line |
//! | daemon | `{"ping":{}}` | the helper answers with any line |
//! | daemon | `{"end":{}}` | the helper ends |

pub mod client;
pub mod lines;
pub mod programs;
