//! Programs and peers that never answer: each is the trouble of one pod.

mod registry;
