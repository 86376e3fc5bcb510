//! How far a pod's connection is.

use crate::launch::error::SandboxError;
use crate::launch::sandbox::SandboxDone;

/// What a pod's step waits for.
#[derive(Debug)]
pub(in super::super) enum Connecting {
    /// A helper looks at its volumes, before all else.
    Looking,
    /// Its host ports are on their way into the kernel.
    Rules(SandboxDone),
    /// CNI plugins attach it.
    Attaching,
    /// They take it back, because a later step of its preparation failed.
    Undoing(SandboxError),
    /// They take it back for good.
    Detaching,
    /// systemd makes its cgroup.
    MakingCgroup,
    /// systemd ends its cgroup, after all else but the files.
    EndingCgroup,
}
