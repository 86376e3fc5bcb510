//! The rights of the process.

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// Input of strangers is parsed in a helper: it gains no rights, and holds few files. It works all the same where the kernel
/// refuses.
pub(crate) fn confine(name: &str, max_files: rlim_t) {
    // The daemon handles its signals in another way, and the processes that it starts inherit that.
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
    // A session of its own: a signal to the daemon's ends nothing here. Fails only for a process that leads one already.
    let _ = nix::unistd::setsid();
    if let Err(error) = nix::sys::prctl::set_no_new_privs() {
        log::warn!("{name} can gain rights: {error}");
    }
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(max_files, |(_, hard)| hard.min(max_files));
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, most, most) {
        log::warn!("{name} can open as many files as the system allows: {error}");
    }
}
