//! A small Kubernetes API on SQLite, which answers as the real API server does. Usable in-process through
//! `Server::service` (what `kube::Client::new` takes) and over TLS through `Server::serve_tls`.
//!
//! It must not know of nodes' sessions: what it needs from a node it asks through `backend::KubeletBackend`.
//!
//! Two layers: the pure surface (`strategy`, `builtin` and the modules they name: defaults, validation,
//! tables, strategic merge, discovery) and the core (`http`, `rest`, `storage`, `watch`, `gc`, `auth`).

pub mod backend;
pub mod builtin;
pub mod decode;
mod defaults;
pub mod discovery;
mod json;
mod kinds;
pub mod openapi;
pub mod qos;
pub mod quantity;
pub mod resource;
pub mod scheduler;
mod strategic;
pub mod strategy;
pub mod table;
pub mod validate;
