//! The namespaces of the node itself, and the way back to them.

use std::fs::File;
use std::path::Path;

use nix::sched::{CloneFlags, setns};

use crate::net::NetError;

/// Holds this process' own network namespace, to look into others and come back.
#[derive(Debug)]
pub struct OwnNetwork(File);

impl OwnNetwork {
    pub fn open() -> Result<Self, NetError> {
        open_own("net").map(Self)
    }

    /// Runs `work` inside the network namespace `netns`; a socket opened there stays there.
    ///
    /// # Panics
    /// Same as [`NamespaceMaker::create`](super::NamespaceMaker::create).
    pub fn inside<T>(&self, netns: &File, work: impl FnOnce() -> T) -> Result<T, NetError> {
        let kind = CloneFlags::CLONE_NEWNET;
        setns(netns, kind).map_err(|errno| NetError::namespace("enter network namespace", errno))?;
        let result = work();
        come_back(&self.0, kind);
        Ok(result)
    }
}

pub(super) fn open_own(name: &str) -> Result<File, NetError> {
    let path = Path::new("/proc/thread-self/ns").join(name);
    File::open(&path).map_err(|source| NetError::path("open", path, source))
}

pub(super) fn come_back(own: &File, kind: CloneFlags) {
    if let Err(errno) = setns(own, kind) {
        panic!("cannot return to the node's own namespaces: {errno}");
    }
}
