//! A small Kubernetes API on SQLite, which answers as the real API server does. Usable in-process through
//! `Server::service` (what `kube::Client::new` takes), or behind whatever port its user opens.
//!
//! It must not know of nodes' sessions, of sockets or of certificates: what it needs from a node it asks through
//! `kubelet_api`. Its folders are floors: `ARCHITECTURE.md` has them in order, and `tests/floors.rs` checks it.

mod admission;
mod auth;
mod cel;
mod codec;
mod controllers;
pub mod http;
pub mod kinds;
mod patch;
mod registry;
pub mod resource;
mod state;
mod storage;

pub use auth::accounts::{Accounts, KeyError};
pub use http::body::{ApiBody, BodyError};
pub use http::server::{LocalService, Overdrawn, Server};
pub use kinds::service::cluster_ip::ServiceRange;
pub use resource::status::ApiError;
pub use state::Config;
pub use storage::StoreError;
