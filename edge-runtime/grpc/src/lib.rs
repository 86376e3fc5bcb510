//! gRPC over unix sockets, both ways: messages in and out. Knows nothing of what is in them. The server answers unary calls;
//! the client also reads streams of a server.
//!
//! | file | owns |
//! |---|---|
//! | `status` | how a call ends: codes and texts |
//! | `message` | a message with its prefix, in parts |
//! | `fields` | header fields of a request and of an answer |
//! | `flood` | how many frames may carry nothing |
//! | `server` | the listener, its connections, and what all of them together may hold |
//! | `client` | a connection to one socket, made again when it is gone, and streams |
//! | `fuzz` | both without sockets, for bytes that a fuzzer makes |

mod client;
mod fields;
mod flood;
mod fuzz;
mod message;
mod server;
mod status;

pub use client::{Client, Streaming};
#[doc(hidden)]
pub use fuzz::{fuzz_client, fuzz_server, fuzz_stream};
pub use message::MAX_MESSAGE;
pub use server::{Call, LASTING_CALL, Peer, serve, serve_lasting};
pub use status::{Code, Status};
