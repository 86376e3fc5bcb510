//! Volumes of CSI drivers: drivers that register, and the daemon's orders to mount and unmount volumes in pods, as the
//! kubelet carries them out (K8s pkg/volume/csi). All that must outlive this process is in the file system.
//!
//! | file | owns |
//! |---|---|
//! | `orders` | lines of the daemon |
//! | `register` | a driver that was found by its socket |
//! | `report` | what the daemon is told of drivers |
//! | `drivers` | the drivers that are registered: no I/O |
//! | `state` | what this process knows |
//! | `failure` | why an order has failed |
//! | `call` | one call to a driver, and work that may wait for the disk |
//! | `turns` | one order at a time for a volume |
//! | `mount`, `unmount`, `keep` | the orders of the daemon |
//! | `again` | drivers that want volumes published again |
//! | `mounts` | what this process has mounted: no I/O, no clock |
//! | `volume`, `maps` | a volume as the driver is told of it: no I/O |
//! | `record`, `paths` | what is kept, and where: no I/O |
//! | `disk`, `folder` | records and folders on the disk |
//! | `owner` | fsGroup, in a process of its own |

mod again;
mod call;
mod disk;
mod drivers;
mod failure;
mod folder;
mod keep;
mod maps;
mod mount;
mod mounts;
mod orders;
mod owner;
mod paths;
mod record;
mod register;
mod report;
pub(crate) mod state;
mod turns;
mod unmount;
mod volume;

pub(crate) use orders::{start, told};
pub use owner::own;
pub(crate) use register::register;
pub(crate) use report::unregister;
