//! How far a pull or import is.
//!
//! | file | owns |
//! |---|---|
//! | `look` | what its process has open and what is on the disk |
//! | `show` | text, rate and pace (pure) |
//! | `print` | standard error |
//! | `pulls` | which are in progress on this node |

pub(crate) mod look;
pub(crate) mod print;
pub(crate) mod pulls;
pub(crate) mod show;
