//! The helper that takes requests of pods to the API, `edge-api`, as the daemon sees it: a program of its own that outlives
//! the daemon, and is there only where `local-api` is configured. Knows nothing of the store, the link or pods.

pub mod client;
