//! Why a connection ends, and which ends are refusals.

use async_tungstenite::tungstenite;
use edge_protocol::SessionError;
use edge_protocol::version::RefuseReason;

use crate::link::dial::DialError;
use crate::link::tls;

/// Why a connection has ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("websocket: {0}")]
    Websocket(Box<tungstenite::Error>),
    #[error("closed by the bridge{0}")]
    Closed(String),
    #[error("the node was not ready in time")]
    NoFacts,
    #[error("the way to the bridge has changed")]
    Moved,
    /// The node loop is gone: so is the link.
    #[error("stopped")]
    Stopped,
}

/// The bridge's reason if it refused this node and closed the connection: a quick retry does not help.
pub(super) fn sent_away(error: &LinkError) -> Option<(RefuseReason, String)> {
    match error {
        LinkError::Session(SessionError::Refused { reason, message }) => Some((*reason, message.clone())),
        LinkError::Dial(DialError::Status { status: 401 | 403, message, .. }) => {
            Some((RefuseReason::Forbidden, message.clone()))
        }
        LinkError::Dial(DialError::Handshake { source, .. }) => tls::refused_certificate(source),
        LinkError::Dial(DialError::Websocket { source, .. }) | LinkError::Websocket(source) => match &**source {
            tungstenite::Error::Io(source) => tls::refused_certificate(source),
            _ => None,
        },
        _ => None,
    }
}
