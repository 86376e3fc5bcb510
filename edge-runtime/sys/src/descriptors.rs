//! Limit of descriptors of this process. The soft limit is 1024 by default, for programs that use `select(2)`. These
//! programs do not, and raise it to the hard limit, as Go's runtime does. Child processes get the original limit back.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use nix::libc::rlim_t;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::program::TUNABLES;

/// Enough for any node; where the hard limit is lower and may be raised, it is.
const WANTED: rlim_t = 65_536;

/// Descriptors that a program needs to continue: to accept a connection, to read a file.
const FEW: rlim_t = 8;

/// Soft and hard limit as this process was started with.
static FOUND: OnceLock<(rlim_t, rlim_t)> = OnceLock::new();

/// Raises this process's limit. Gives what it is then.
pub fn raise() -> rlim_t {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    FOUND.get_or_init(|| (soft, hard));
    // Raising the hard one takes CAP_SYS_RESOURCE.
    if hard < WANTED && setrlimit(Resource::RLIMIT_NOFILE, WANTED, WANTED).is_ok() {
        return WANTED;
    }
    let raised = soft >= hard || setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    if raised { soft.max(hard) } else { soft }
}

/// Gives this process, which is about to become another program, the limit it was started with.
///
/// # Errors
/// The kernel refuses.
pub fn restore_self() -> io::Result<()> {
    match FOUND.get() {
        Some((soft, hard)) => Ok(setrlimit(Resource::RLIMIT_NOFILE, *soft, *hard)?),
        None => Ok(()),
    }
}

/// Gives `command` the limit with which this process was started: a container's `ulimit -n` must not depend on this
/// process's own.
pub fn restore(command: &mut Command) {
    // SAFETY: setrlimit(2), all that this calls, is a plain system call that touches no memory but its argument's; it
    // allocates nothing and takes no lock, so it may be called between fork and exec.
    unsafe { command.pre_exec(restore_self) };
}

/// A command to which [`restore`] applies, without the daemon's settings of the allocator: OCI runtimes make thousands of
/// small allocations, and those of the monitor inherit its environment.
pub fn command(program: impl AsRef<OsStr>) -> smol::process::Command {
    restored(program.as_ref()).into()
}

fn restored(program: &OsStr) -> Command {
    let mut command = Command::new(program);
    restore(&mut command);
    command.env_remove(TUNABLES);
    command
}

/// Whether the error means that descriptors or memory are short, here or on the whole machine; it then does not concern
/// the requested object.
pub fn is_shortage(error: &io::Error) -> bool {
    use nix::libc::{EMFILE, ENFILE, ENOMEM};
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE | ENOMEM))
}

/// Returns the result; `None` for an error other than a shortage.
///
/// # Errors
/// No descriptor or memory is left for the request.
pub fn unless_short<T>(asked: io::Result<T>) -> io::Result<Option<T>> {
    match asked {
        Err(error) if is_shortage(&error) => Err(error),
        asked => Ok(asked.ok()),
    }
}

/// How many are open, and how many may be.
pub fn used() -> Option<(rlim_t, rlim_t)> {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    // The enumeration itself uses one.
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
    Some((rlim_t::try_from(open).ok()?, soft))
}

/// Almost none is left.
pub fn are_short((open, limit): (rlim_t, rlim_t)) -> bool {
    open.saturating_add(FEW.max(limit / 10)) >= limit
}

/// Almost none is left, or not even one to look with.
pub fn run_short() -> bool {
    used().is_none_or(are_short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_do_not_inherit_the_daemons_allocator() {
        let command = restored("runc".as_ref());
        assert!(command.get_envs().eq([(OsStr::new("GLIBC_TUNABLES"), None)]), "removed");
    }

    #[test]
    fn shortage_is_detected_before_the_limit() {
        assert!(!are_short((900, 1024)) && are_short((922, 1024)) && are_short((1024, 1024)));
        assert!(!are_short((15, 24)) && are_short((16, 24)));
        let (open, limit) = used().unwrap();
        assert!(open > 2 && limit >= open);
    }
}
