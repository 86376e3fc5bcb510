//! Pods' connections, requests and answers.
//!
//! | file | owns |
//! |---|---|
//! | `listen` | sockets, and who may connect |
//! | `seat` | a connection's place |
//! | `connection` | one connection |
//! | `pace` | how long a connection may take for what |
//! | `filter` | what of a request is passed on (pure) |
//! | `handle` | one request |
//! | `job` | what is known of it |
//! | `head` | the head of its answer |
//! | `online` | a request through the link |
//! | `upload` | a request's body |
//! | `offline` | the answer without the link |
//! | `body` | an answer's body |
//! | `keep` | a copy of an answer for the cache; lists that are read again for it |
//! | `refusal` | errors as the API has them |

mod body;
mod connection;
mod filter;
mod handle;
mod head;
mod job;
mod keep;
mod listen;
mod offline;
mod online;
mod pace;
mod refusal;
mod seat;
mod upload;

pub(crate) use listen::start;
