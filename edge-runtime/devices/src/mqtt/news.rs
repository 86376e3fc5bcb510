//! What MQTT tells the rest of the helper.

use super::listener::filter::Filter;

/// An event of the broker, or of clients of the listener.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// It has taken our subscriptions.
    Up,
    Down,
    /// `payload`: none if it is too long.
    Message {
        topic: String,
        payload: Option<Vec<u8>>,
        retained: bool,
    },
    /// A client of the listener now receives messages of the node that match these filters.
    Subscribed(Vec<Filter>),
}
