//! Rules of the cloud (rules.kubeedge.io) on a node: messages and requests go up, and calls come down. The bridge knows
//! what a rule does with a message, and who may call.
//!
//! | file | owns |
//! |---|---|
//! | `messages` | which messages are wanted, and those that are not in the store yet: no I/O, no clock |
//! | `requests` | where requests may go, and what is under way: no I/O, no clock |
//! | `servicebus` | where programs on this device send requests |
//! | `call` | does what a rule wants done here |
//! | `http` | a request to a server on this device |

mod call;
mod http;
mod messages;
mod requests;
pub(crate) mod servicebus;

pub use call::{Answered, Calls};
pub use messages::Messages;
pub use requests::{Request, Requests};
pub use servicebus::serve;
