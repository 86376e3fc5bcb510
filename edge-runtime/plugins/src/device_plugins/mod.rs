//! Device plugins: registrations, lists of devices, orders.
//!
//! | file | owns |
//! |---|---|
//! | `rules` | rules for registrations: no I/O |
//! | `serve` | the kubelet's socket at which plugins register |
//! | `follow` | a registration, until another one replaces it |
//! | `allocate`, `pre_start` | the two orders of the daemon |

pub(crate) mod allocate;
mod follow;
pub(crate) mod pre_start;
pub(crate) mod rules;
mod serve;

pub(crate) use follow::register;
pub(crate) use serve::start;
