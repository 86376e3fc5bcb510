//! Applies a pod's security context: seccomp and AppArmor profiles, and refusals before anything is created. Decisions
//! are pure; each file documents what it reads.

pub mod admit;
pub mod apparmor;
pub mod seccomp;
