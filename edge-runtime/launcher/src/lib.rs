//! Selects which version of a node's programs runs: the package's, or an upgrade, which must first pass a trial.
//!
//! Every start of a node uses this program. So it is small, changes only with the package, and knows the node only by
//! files and one socket. It does not know pods, the store or the link.
//!
//! | file | owns |
//! |---|---|
//! | `versions` | the folders of versions, and the file that says which is in force |
//! | `decide` | what a start is to do (pure) |
//! | `start` | doing it: this process becomes the daemon |
//! | `judge` | whether what is on trial has proved itself (pure) |
//! | `look` | what can be seen of the daemon from outside |
//! | `trial` | the process that looks and judges, and goes back |
//! | `config_lock` | the lock of a configuration file, also for the commands that change it |
//! | `main_process` | which process the daemon is, and ending it |

pub mod config_lock;
pub mod decide;
pub mod judge;
pub mod look;
pub mod main_process;
pub mod start;
pub mod trial;
pub mod versions;
