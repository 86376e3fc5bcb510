//! Images: names, registries, archives, layers on disk, and the root file systems built from them.
//!
//! Work that is slow or reads untrusted input (fetch, hash, unpack) runs in the helper processes `pull` and `import`.
//! The daemon only starts them ([`spawn`]), mounts layers ([`rootfs`]) and decides what is not needed any more
//! ([`gc`]). Nothing here knows pods.

pub mod access;
pub mod archive;
mod assemble;
pub mod auth;
pub mod challenge;
pub mod compress;
pub mod digest;
pub mod download;
pub mod error;
pub mod folders;
pub mod gc;
pub mod helper;
pub mod http;
pub mod import;
pub mod incoming;
pub mod layers;
pub mod limits;
pub mod manifest;
pub mod platform;
pub mod progress;
mod proxy;
pub mod pull;
pub mod reference;
pub mod registry;
pub mod registry_config;
pub mod rootfs;
pub mod settle;
pub mod spawn;
mod tls;
pub mod unpack;
pub mod wants;

pub use error::ImageError;
pub use reference::Reference;
