//! Unary gRPC over unix sockets, both ways: messages in and out. Knows nothing of what is in them.
//!
//! | file | owns |
//! |---|---|
//! | `status` | how a call ends: codes and messages |
//! | `server` | the listener: who may connect, and how many |
//! | `client` | a connection to one socket, made again when it is gone |

mod client;
mod server;
mod status;

pub use client::Client;
pub use server::{Call, Peer, serve};
pub use status::{Code, Status};
