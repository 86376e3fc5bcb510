//! Eviction signals, by their names in the kubelet. Pure.

/// One thing that can run short (K8s pkg/kubelet/eviction/api).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    MemoryAvailable,
    NodeFsAvailable,
    NodeFsInodesFree,
    ImageFsAvailable,
    ImageFsInodesFree,
    PidAvailable,
}

/// The node condition that a signal raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shortage {
    Memory,
    Disk,
    Pid,
}

impl Signal {
    pub const ALL: [Self; 6] = [
        Self::MemoryAvailable,
        Self::NodeFsAvailable,
        Self::NodeFsInodesFree,
        Self::ImageFsAvailable,
        Self::ImageFsInodesFree,
        Self::PidAvailable,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::NodeFsAvailable => "nodefs.available",
            Self::NodeFsInodesFree => "nodefs.inodesFree",
            Self::ImageFsAvailable => "imagefs.available",
            Self::ImageFsInodesFree => "imagefs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.name() == name)
    }

    /// The resource as eviction messages name it.
    pub fn resource(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory",
            Self::NodeFsAvailable | Self::ImageFsAvailable => "ephemeral-storage",
            Self::NodeFsInodesFree | Self::ImageFsInodesFree => "inodes",
            Self::PidAvailable => "pids",
        }
    }

    /// Whether what runs short is on the disk: bytes or inodes.
    pub fn is_of_disk(self) -> bool {
        self.shortage() == Shortage::Disk
    }

    pub fn shortage(self) -> Shortage {
        match self {
            Self::MemoryAvailable => Shortage::Memory,
            Self::PidAvailable => Shortage::Pid,
            _ => Shortage::Disk,
        }
    }

    /// Whether amounts are bytes, as opposed to numbers of things.
    pub fn in_bytes(self) -> bool {
        matches!(self, Self::MemoryAvailable | Self::NodeFsAvailable | Self::ImageFsAvailable)
    }
}

/// Bytes, inodes or process ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    pub available: u64,
    pub capacity: u64,
}

/// One reading of the host. A signal that could not be read is absent and triggers no eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observations([Option<Observation>; 6]);

impl Observations {
    pub fn set(&mut self, signal: Signal, available: u64, capacity: u64) {
        self.0[signal as usize] = Some(Observation { available, capacity });
    }

    pub fn get(&self, signal: Signal) -> Option<Observation> {
        self.0[signal as usize]
    }
}
