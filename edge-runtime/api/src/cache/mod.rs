//! Answers that ServiceAccounts have read: the newest of each path, on disk and, where that is newer or must not be on
//! disk, in memory.
//!
//! | file | owns |
//! |---|---|
//! | `answer` | what is kept of an answer, and as bytes of a file (pure) |
//! | `admit` | which answers may be kept, and whether pages follow (pure) |
//! | `chains` | lists that come in pages, until all have come (pure) |
//! | `evict` | which answers go first (pure) |
//! | `disk` | the files |
//! | `store` | all of it |
//! | `tee` | an answer on its way to a pod |
//! | `wear` | how much is written for one ServiceAccount (pure) |

mod admit;
mod answer;
mod chains;
mod disk;
mod evict;
mod store;
mod tee;
mod wear;

pub(crate) use admit::may_keep;
pub(crate) use answer::Answer;
pub(crate) use store::{Cache, WRITES};
pub(crate) use tee::{Room, Tee};
