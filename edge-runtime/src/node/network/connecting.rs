//! Progress of a pod's connection, and results of other processes for it.

use std::net::IpAddr;

use crate::launch::error::SandboxError;
use crate::launch::looking::Trouble;
use crate::launch::sandbox::SandboxDone;

/// What a pod's step waits for.
#[derive(Debug)]
pub(in super::super) enum Connecting {
    /// A helper looks at its volumes, before all else.
    Looking,
    /// The bridge sends tokens for its volumes. It has these addresses.
    Tokens { ips: Vec<IpAddr>, by_plugins: bool },
    /// Its host ports are on their way into the kernel.
    Rules(SandboxDone),
    /// Rules of its NetworkPolicies are being written to the kernel.
    Policies(SandboxDone),
    /// CNI plugins attach it.
    Attaching,
    /// They take it back, because a later step of its preparation failed.
    Undoing(SandboxError),
    /// The plugins undo it permanently.
    Detaching,
    /// systemd makes its cgroup.
    MakingCgroup,
    /// systemd ends its cgroup, after all else but the files.
    EndingCgroup,
}

/// What another process has answered.
pub(in super::super) enum Answer {
    /// A helper has looked at the volumes.
    Looked(Result<(), Trouble>),
    /// The kernel has the host ports, or refused them.
    Rules(Result<(), String>),
    /// The kernel has the rules of policies, or refused them.
    Policies(Result<(), String>),
    /// CNI plugins have attached the pod (its addresses) or taken it back (none), or failed.
    Plugins(Result<Vec<IpAddr>, String>),
    /// systemd has made the cgroup or ended it, or could not.
    Cgroup(Result<(), String>),
}
