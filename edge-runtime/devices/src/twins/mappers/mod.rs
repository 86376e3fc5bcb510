//! Mappers, the programs that drive devices over DMI: which are registered, the devices of each, and their next calls.
//! Does not know the bytes of gRPC, or sockets.
//!
//! | file | owns |
//! |---|---|
//! | `register` | a mapper says that it is there, and is given its devices |
//! | `request` | what a mapper asks |
//! | `state` | what is known of all mappers |
//! | `events` | what follows from a request, an answer, or the daemon's rows |
//! | `allowed`, `admit` | pods whose mappers may speak; whether a call is permitted |
//! | `rate` | how often they may register |
//! | `drive` | the calls that are due |
//! | `mapper`, `retry` | one mapper: what it holds, its next call, and when |
//! | `given`, `convert`, `push` | what it is given of a device |
//! | `packed` | specs of devices, in little memory |
//! | `report` | what it says of its devices |
//! | `rows` | what is kept over a restart |

mod admit;
mod allowed;
mod convert;
mod drive;
mod events;
mod given;
mod mapper;
mod packed;
mod push;
mod rate;
mod register;
mod report;
mod request;
mod retry;
mod rows;
mod state;

pub(super) use given::{of_device, of_model};
pub(super) use packed::Packed;
pub use request::Request;
pub(super) use rows::is_of_mapper;
pub(super) use state::Mappers;

/// Our own in the folder.
pub const SOCKET: &str = "dmi.sock";
