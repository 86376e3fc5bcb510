//! The state of the link, as the daemon says it.

use std::rc::Rc;

use tokio::time::Instant;

use crate::relay::Relay;

#[derive(Debug)]
pub(crate) struct Link {
    /// The daemon has said so.
    pub(crate) is_up: bool,
    /// When that changed, in milliseconds of the Unix epoch.
    pub(crate) since_ms: u64,
    pub(crate) relay: Option<Rc<Relay>>,
    /// When the helper saw that it is down.
    pub(crate) down_at: Instant,
}

impl Link {
    /// Whether requests can be sent.
    pub(crate) const fn usable(&self) -> bool {
        self.is_up && self.relay.is_some()
    }
}
