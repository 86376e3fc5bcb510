//! The helper of a node that talks to device plugins (`v1beta1`) and CSI drivers of Kubernetes, as a library. It takes
//! registrations, follows the devices of plugins, chooses among those that the daemon offers, and asks plugins to allocate
//! them. It mounts volumes of CSI drivers. It keeps no state but registrations, in memory, and records of volumes, in the
//! file system: allocations are the daemon's.
//!
//! | module | owns |
//! |---|---|
//! | `run` | the sockets and the end |
//! | `control` | the Unix socket at which the daemon calls |
//! | `shared` | what all tasks use: the plugins, the daemon, what is refused |
//! | `orders` | lines of the daemon |
//! | `device_plugins` | registrations, lists of devices, orders |
//! | `csi` | volumes of CSI drivers |
//! | `registry` | the folder in which plugins of any type are found by their socket |
//! | `pod_resources` | the socket for clients that ask which pod has which device |
//! | `connected` | a plugin that can be called |
//! | `kept` | registrations, for another helper |
//! | `serve` | a gRPC socket in a folder of the kubelet |
//! | `folder` | sockets in folders that containers can write to |
//! | `cdi` | specifications of the Container Device Interface: no socket |
//! | `edits` | the answer of a plugin as changes of a container: no I/O |
//! | `choose` | which devices a container gets: no I/O |
//! | `plugins` | the plugins that are connected, and their devices: no I/O, no clock |
//! | `messages` | messages of all gRPC services: no I/O |
//! | `wire` | protobuf: no I/O |
//! | `names` | rules for names and paths: no I/O |
//! | `refused` | what cannot be done now: no I/O, no clock |
//! | `rate` | a limit of calls: no I/O, no clock |
//! | `counters` | how it goes |

mod cdi;
mod choose;
mod connected;
mod control;
mod counters;
mod csi;
mod device_plugins;
mod edits;
mod folder;
mod kept;
mod messages;
mod names;
mod orders;
mod plugins;
mod pod_resources;
mod rate;
mod refused;
mod registry;
pub mod run;
mod serve;
mod shared;
mod wire;

pub use csi::own;
