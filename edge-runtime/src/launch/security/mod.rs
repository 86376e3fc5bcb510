//! What a pod's security context means on this node: seccomp and AppArmor profiles, and which wishes are
//! refused before anything is made. Decisions are pure; each file says what little it reads.

pub mod admit;
pub mod apparmor;
pub mod seccomp;
