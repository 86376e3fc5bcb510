//! The helper of a node that takes requests of pods to the API, as a library. Online each request goes through the link
//! with the pod's own token. Without the link a pod is answered with what its ServiceAccount last read at the same path.
//! It has no rights of its own: it asks nothing for a node or for another pod.
//!
//! | module | owns |
//! |---|---|
//! | `run` | the sockets and the end |
//! | `control` | the Unix socket at which the daemon calls |
//! | `http` | pods' connections, requests and answers |
//! | `relay` | requests as streams of the link |
//! | `cache` | answers, on disk and in memory |
//! | `shared` | what all connections use: pods, link, cache |
//! | `guests` | pods' connections at once: no I/O |
//! | `link` | whether the link is up |
//! | `pods` | pods and their tokens: no I/O, no clock |
//! | `rate` | how soon requests go on: no I/O, no clock |
//! | `asked` | what a request asks for, and its key in the cache: no I/O |
//! | `tls` | the certificate |
//! | `counters` | how it goes |

mod asked;
mod cache;
mod control;
mod counters;
mod guests;
mod http;
mod link;
mod pods;
mod rate;
mod relay;
pub mod run;
mod shared;
mod tls;
