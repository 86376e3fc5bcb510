//! A small Kubernetes API on SQLite, which answers as the real API server does. Usable in-process through
//! `Server::service` (what `kube::Client::new` takes) and over TLS through `Server::serve_tls`.
//!
//! It must not know of nodes' sessions: what it needs from a node it asks through `kubelet_api`.
//!
//! Two layers: the pure surface (`strategy`, `builtin` and the modules they name: defaults, validation,
//! tables, strategic merge, discovery) and the core (`http`, `rest`, `storage`, `watch`, `gc`, `auth`).

mod accounts;
mod admission;
mod apply;
mod auth;
mod binder;
mod body;
mod bootstrap;
pub mod builtin;
mod connect;
mod crd;
pub mod decode;
mod defaults;
pub mod discovery;
mod error;
mod events;
mod front;
mod gc;
mod gc_queue;
mod http;
mod inflight;
mod kinds;
mod leases;
mod lifecycle;
mod list_keys;
mod managed;
mod messages;
mod metrics;
mod namespaces;
mod node_proxy;
pub mod openapi;
mod output;
mod parse;
mod patch;
mod pods;
mod protobuf;
pub mod qos;
mod quota;
mod registry;
mod request;
pub mod resource;
mod rest;
mod reviews;
pub mod scheduler;
mod serve;
mod server;
mod services;
mod state;
mod storage;
mod strategic;
pub mod strategy;
pub mod table;
pub mod validate;
mod watch;

pub use accounts::{Accounts, KeyError};
pub use body::{ApiBody, BodyError};
pub use error::ApiError;
pub use server::{LocalService, Server};
pub use services::ServiceRange;
pub use state::Config;
pub use storage::StoreError;
