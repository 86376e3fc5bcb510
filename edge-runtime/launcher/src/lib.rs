//! Which version of a node's programs runs: the package's, or one that came later, which has to prove itself first.
//!
//! Every start of a node goes through here, so it is small, changes with the package alone, and knows of the node only what
//! stands in files and at one socket. It knows no pods, no store, no link.
//!
//! | file | owns |
//! |---|---|
//! | `versions` | the folders of versions, and the file that says which is in force |
//! | `decide` | what a start is to do (pure) |
//! | `start` | doing it: this process becomes the daemon |
//! | `judge` | whether what is on trial has proved itself (pure) |
//! | `look` | what can be seen of the daemon from outside |
//! | `trial` | the process that looks and judges, and goes back |
//! | `main_process` | which process the daemon is, and ending it |

pub mod decide;
pub mod judge;
pub mod look;
pub mod main_process;
pub mod start;
pub mod trial;
pub mod versions;
