//! Small facts about and calls to the host kernel. Knows nothing of pods.

pub mod cgroup;
pub mod host;
pub mod quantity;
