//! Network, IPC, UTS and user namespaces of a pod, held by bind mounts on files instead of a pause process.
//!
//! The files are named `net`, `ipc`, `uts` and `user` in the folder given by the caller. A crash at any point leaves files
//! that [`remove`] clears and [`NamespaceMaker::create`] replaces. Knows nothing of addresses and links.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{FsType, statfs};

use super::NetError;
use super::etc_files;
use super::netlink::{Socket, link};
use crate::sys::files::{unless_missing, unmount};

mod own;
mod user;

use own::{come_back, open_own};

pub use own::OwnNetwork;
pub use user::IDS;

/// `NSFS_MAGIC` of linux/magic.h.
const NSFS: FsType = FsType(0x6e73_6673);

/// The three kinds, with the name that the kernel and our files have in common.
const KINDS: [(&str, CloneFlags); 3] =
    [("net", CloneFlags::CLONE_NEWNET), ("ipc", CloneFlags::CLONE_NEWIPC), ("uts", CloneFlags::CLONE_NEWUTS)];

/// The user namespace owns the others. A thread of the daemon cannot enter it, so it is not one of the [`KINDS`].
const USER: &str = "user";

/// Flag of the kind of this name.
pub(crate) fn kind_of(name: &str) -> Option<CloneFlags> {
    KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
}

/// Which namespaces a pod has of its own; what is not asked for is the node's.
#[derive(Clone, Copy, Debug)]
pub struct NamespaceRequest<'a> {
    /// False for `hostNetwork`.
    pub net: bool,
    /// False for `hostIPC`.
    pub ipc: bool,
    /// Host name inside; `None` keeps the node's (CRI runtimes do so for `hostNetwork` pods).
    pub hostname: Option<&'a str>,
    /// Names and values written inside, in this order.
    pub sysctls: &'a [(String, String)],
    /// First of the [`IDS`] ids outside that are 0 and so on inside; none without a user namespace.
    pub first_id: Option<u32>,
}

impl NamespaceRequest<'_> {
    fn wants(&self, kind: CloneFlags) -> bool {
        match kind {
            CloneFlags::CLONE_NEWNET => self.net,
            CloneFlags::CLONE_NEWIPC => self.ipc,
            _ => self.hostname.is_some(),
        }
    }

    fn paths(&self, dir: &Path) -> PodNamespaces {
        let path = |(name, kind): (&str, CloneFlags)| self.wants(kind).then(|| dir.join(name));
        let [net, ipc, uts] = KINDS.map(path);
        let user = self.first_id.map(|first_id| UserNamespace { path: dir.join(USER), first_id });
        PodNamespaces { net, ipc, uts, user }
    }
}

/// Paths to give to the OCI runtime. `None` means the node's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNamespaces {
    pub net: Option<PathBuf>,
    pub ipc: Option<PathBuf>,
    pub uts: Option<PathBuf>,
    pub user: Option<UserNamespace>,
}

/// A pod's own ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserNamespace {
    pub path: PathBuf,
    /// Id on the node of the pod's root.
    pub first_id: u32,
}

/// Holds this process' own namespaces, to come back to. One per daemon, opened before anything else.
#[derive(Debug)]
pub struct NamespaceMaker {
    own: [(CloneFlags, File); 3],
}

impl NamespaceMaker {
    pub fn open() -> Result<Self, NetError> {
        let [net, ipc, uts] = KINDS;
        Ok(Self { own: [(net.1, open_own(net.0)?), (ipc.1, open_own(ipc.0)?), (uts.1, open_own(uts.0)?)] })
    }

    /// Makes the namespaces below `dir` (created, mode 0700), loopback up. What a crash left there is replaced.
    ///
    /// # Panics
    /// When the thread cannot return to its own namespaces: going on would mean to run the node inside a pod.
    pub fn create(&self, dir: &Path, request: &NamespaceRequest<'_>) -> Result<PodNamespaces, NetError> {
        make_folder(dir)?;
        let wanted: Vec<_> = KINDS.into_iter().filter(|(_, kind)| request.wants(*kind)).collect();
        for (name, _) in &wanted {
            let path = dir.join(name);
            File::create(&path).map_err(|source| NetError::path("create", path, source))?;
        }
        let flags = wanted.iter().fold(CloneFlags::empty(), |flags, (_, kind)| flags | *kind);
        let made = match request.first_id {
            None => unshare(flags).map_err(|errno| NetError::namespace("make namespaces", errno)),
            Some(first) => enter_owned(dir, first, &wanted),
        };
        let made = made.and_then(|()| fill(dir, &wanted, request));
        self.come_back(flags);
        if made.is_err() {
            // The first error is the cause; a later create removes the remains.
            let _ = remove(dir);
        }
        made.map(|()| request.paths(dir))
    }

    fn come_back(&self, flags: CloneFlags) {
        for (kind, file) in self.own.iter().filter(|(kind, _)| flags.contains(*kind)) {
            come_back(file, *kind);
        }
    }
}

fn make_folder(dir: &Path) -> Result<(), NetError> {
    unpin(dir)?;
    fs::create_dir_all(dir).map_err(|source| NetError::path("create folder", dir, source))?;
    // A user who can open a pinned namespace can enter it, so the folder belongs to root alone.
    fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .map_err(|source| NetError::path("set mode of", dir, source))
}

/// Pins a new user namespace and enters the `wanted` ones, which it owns.
fn enter_owned(dir: &Path, first: u32, wanted: &[(&'static str, CloneFlags)]) -> Result<(), NetError> {
    let failed = |source| NetError::namespace("make a user namespace", source);
    let holder = user::Holder::start(first, wanted.iter().map(|(name, _)| *name)).map_err(failed)?;
    let target = dir.join(USER);
    File::create(&target).map_err(|source| NetError::path("create", &target, source))?;
    pin(&holder.path(USER), target)?;
    for (name, kind) in wanted {
        let path = holder.path(name);
        let file = File::open(&path).map_err(|source| NetError::path("open", path, source))?;
        setns(file, *kind).map_err(|errno| NetError::namespace("enter namespaces", errno))?;
    }
    Ok(())
}

fn pin(source: &Path, target: PathBuf) -> Result<(), NetError> {
    mount(Some(source), &target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .map_err(|errno| NetError::path("pin namespace at", target, errno))
}

fn fill(dir: &Path, wanted: &[(&'static str, CloneFlags)], request: &NamespaceRequest<'_>) -> Result<(), NetError> {
    if let Some(hostname) = request.hostname {
        nix::unistd::sethostname(hostname).map_err(|errno| NetError::namespace("set host name", errno))?;
    }
    if request.net {
        let mut socket = Socket::open().map_err(|source| NetError::namespace("open netlink socket", source))?;
        link::loopback_up(&mut socket).map_err(|source| NetError::namespace("set loopback up", source))?;
    }
    for (name, value) in request.sysctls {
        super::sysctl::write(name, value).map_err(NetError::Sysctl)?;
    }
    for (name, _) in wanted {
        pin(&Path::new("/proc/thread-self/ns").join(name), dir.join(name))?;
    }
    Ok(())
}

/// Returns the namespaces of [`NamespaceMaker::create`] in `dir` if all exist and are mounted (after a daemon restart).
/// Also `None` for a pod without its own namespaces, after a reboot has removed `dir`.
pub fn existing(dir: &Path, request: &NamespaceRequest<'_>) -> Option<PodNamespaces> {
    let paths = request.paths(dir);
    let user = paths.user.as_ref().map(|user| &user.path);
    let all = [paths.net.as_ref(), paths.ipc.as_ref(), paths.uts.as_ref(), user];
    let pinned = all.into_iter().flatten().all(|path| is_pinned(path));
    (pinned && dir.is_dir()).then_some(paths)
}

/// Whether a namespace is mounted there.
pub(crate) fn is_pinned(path: &Path) -> bool {
    statfs(path).is_ok_and(|fs| fs.filesystem_type() == NSFS)
}

/// Unpins and deletes `dir`. Safe on a missing or half-made folder; the kernel frees the namespaces when the last
/// process in them has gone, and with the network namespace the pod's link.
pub fn remove(dir: &Path) -> Result<(), NetError> {
    unpin(dir)?;
    // Files of a pod that an earlier version made.
    etc_files::remove(dir)?;
    unless_missing(fs::remove_dir(dir)).map(drop).map_err(|error| NetError::path("delete folder", dir, error))
}

fn unpin(dir: &Path) -> Result<(), NetError> {
    for name in KINDS.iter().map(|(name, _)| *name).chain([USER]) {
        let path = dir.join(name);
        unmount_all(&path)?;
        unless_missing(fs::remove_file(&path)).map_err(|error| NetError::path("delete", path, error))?;
    }
    Ok(())
}

/// Unmounts until nothing is mounted: a crash between two attempts may have left one mount over another.
fn unmount_all(path: &Path) -> Result<(), NetError> {
    for _ in 0..8 {
        if !unmount(path).map_err(|error| NetError::path("unmount", path, error))? {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests;
