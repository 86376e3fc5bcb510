//! How far a pull or import is.
//!
//! | file | owns |
//! |---|---|
//! | `look` | what its process has open and what is on the disk |
//! | `show` | text, rate and pace (pure) |
//! | `pulls` | which are in progress on this node |

pub(crate) mod look;
pub(crate) mod pulls;
pub(crate) mod show;
