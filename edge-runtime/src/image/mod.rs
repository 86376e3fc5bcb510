//! Images: names, registries, archives, layers on disk, and the root file system made of them.
//!
//! Whatever is fed by strangers or takes long (fetch, hash, unpack) runs in the helper processes
//! `pull` and `import`; the daemon only starts them ([`spawn`]), mounts layers ([`rootfs`]) and
//! decides what is no longer needed ([`gc`]). Nothing here knows pods.

pub mod error;
pub mod record;
pub mod reference;
pub mod registry_config;
pub mod rootfs;

pub use error::ImageError;
pub use record::{ImageConfig, ImageRecord};
pub use reference::Reference;
