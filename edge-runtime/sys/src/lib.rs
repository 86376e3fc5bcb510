//! Small facts about and calls to the host kernel. Knows nothing of pods.

pub mod beneath;
pub mod board;
pub mod cgroup;
pub mod delete;
pub mod descriptors;
pub mod family;
pub mod files;
pub mod helper;
pub mod host;
pub mod idmap;
pub mod oom;
pub mod pidfd;
pub mod program;
pub mod random;
pub mod reserve;
pub mod resolve;
pub mod signal;
pub mod systemd;
pub mod tasks;
pub mod tcp;
pub mod terminal;
pub mod time;
pub mod trash;
pub mod watch;
pub mod words;
pub mod writeback;
