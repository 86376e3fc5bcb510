//! What a kubelet serves and how: requests of its own API, exec, attach and port-forward with their clients, and
//! [`backend::KubeletBackend`], by which a node answers. The bridge's kubelet ports and the embedded API both speak
//! through it; it must not know of either, of nodes' sessions or of who may ask.
//!
//! | module | owns |
//! |---|---|
//! | [`backend`] | what is asked of a node |
//! | [`request`] | pure: paths and parameters of the kubelet's API |
//! | [`read`], `metrics` | answers that only tell: health, pods, measurements |
//! | [`streaming`] | what exec, attach and port-forward speak with their clients |
//! | [`websocket`] | pure: the handshake of a WebSocket |

pub mod backend;
mod metrics;
pub mod read;
pub mod request;
pub mod streaming;
pub mod websocket;
