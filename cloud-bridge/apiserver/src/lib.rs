//! A small Kubernetes API on SQLite, with the answers of the real API server. Use it in-process through
//! `Server::service` (the argument of `kube::Client::new`), or serve it at a port.
//!
//! It must not know sessions of nodes, sockets or certificates: it reaches a node through `kubelet_api`. Its folders
//! are layers: `ARCHITECTURE.md` lists them in order, and `tests/floors.rs` checks the order.

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
pub use codec::yaml::write::from_json as yaml_from_json;
pub use http::body::{ApiBody, BodyError};
pub use http::server::{LocalService, Overdrawn, Server};
pub use kinds::service::range::ServiceRange;
pub use resource::status::ApiError;
pub use state::Config;
pub use storage::{StoreError, backup};
