//! Server for health checks: HTTP/1.1 on a socket and, if configured, on a port. It reads requests and writes answers;
//! the caller provides their content.
//!
//! | file | owns |
//! |---|---|
//! | `serve` | sockets, connections, limits |
//! | `request` | what is asked for |
//! | `text` | metrics as Prometheus reads them |

pub mod request;
mod serve;
pub mod text;

use std::pin::Pin;
use std::rc::Rc;

use smol::channel::Sender;

#[doc(hidden)]
pub use request::read;
pub use request::{Refusal, What};
pub use serve::{on_port, on_socket};

/// A request and its answer channel. Dropping it refuses the request as one too many.
pub struct Asked {
    pub what: What,
    pub answer: Sender<Answer>,
}

pub struct Answer {
    /// Else 503.
    pub ok: bool,
    pub body: String,
    /// What takes longer than the asked one has time for; the end of the body.
    pub more: Option<Pin<Box<dyn Future<Output = String>>>>,
}

impl Answer {
    pub fn new(ok: bool, body: impl Into<String>) -> Self {
        Self { ok, body: body.into(), more: None }
    }
}

/// Passes a question on; false if the queue is full.
pub type Ask = Rc<dyn Fn(Asked) -> bool>;
