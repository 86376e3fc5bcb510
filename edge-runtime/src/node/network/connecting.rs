//! Progress of a pod's connection, and results of other processes for it.

use std::net::IpAddr;

use crate::launch::error::SandboxError;
use crate::launch::looking::Trouble;
use crate::launch::sandbox::SandboxDone;
use crate::volume::VolumeError;

/// What a pod's step waits for.
#[derive(Debug)]
pub(in super::super) enum Connecting {
    /// The helper mounts its volumes of CSI drivers, before all else.
    Mounting,
    /// A helper looks at its other volumes, before the rest.
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
    /// The helper unmounts its volumes of CSI drivers, before its files go.
    Unmounting,
}

/// What another process has answered.
pub(in super::super) enum Answer {
    /// The volumes of CSI drivers are mounted, or unmounted, or one of them failed.
    Volumes(Result<(), VolumeError>),
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
