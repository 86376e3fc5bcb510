//! Processes held by pidfd: opened, signalled, and asked how they ended. Knows nothing of containers.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::{fs, io};

use nix::libc;

/// `PIDFD_INFO_EXIT` of linux/pidfd.h (Linux 6.15): ask for, and tells of, a valid exit code.
const INFO_EXIT: u64 = 1 << 3;

/// `struct pidfd_info` in its first version; the kernel fills as much as it is given room for.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroupid: u64,
    ids: [u32; 11],
    exit_code: i32,
}

mod ioctl {
    nix::ioctl_readwrite!(pidfd_get_info, 0xFF, 11, super::PidfdInfo);
}

/// A pidfd of a living process. Fails with ENOSYS before Linux 5.3.
pub fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and touches no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a signal to exactly this process; ESRCH once it has ended.
pub fn signal(pidfd: &OwnedFd, signal: i32) -> io::Result<()> {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor lives as long as the reference; a null siginfo is allowed.
    let done = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, none, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Wait status of an ended process whose parent is another process. `None` while it lives, and when it has been reaped
/// on a kernel before 6.15.
pub fn exit_status(pidfd: &OwnedFd, pid: i32) -> Option<i32> {
    info(pidfd).or_else(|| {
        let status = stat(pid).filter(|stat| stat.ended).map(|stat| stat.exit_status)?;
        // A signal can be sent until the process is reaped: so the status was this process's.
        signal(pidfd, 0).ok().map(|()| status)
    })
}

/// Known once the process has been reaped, Linux 6.15 and later.
fn info(pidfd: &OwnedFd) -> Option<i32> {
    let mut info = PidfdInfo { mask: INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: `info` has the layout and size that the request number carries.
    unsafe { ioctl::pidfd_get_info(pidfd.as_raw_fd(), &raw mut info) }.ok()?;
    (info.mask & INFO_EXIT != 0).then_some(info.exit_code)
}

/// Reaps one ended child: pid and wait status. nix's own wait cannot tell of a death by real-time signal.
pub fn reap() -> Option<(i32, i32)> {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    (pid > 0).then_some((pid, status))
}

/// State of a process in /proc, including ended ones that are not reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub ended: bool,
    pub parent: i32,
    /// Pid of the session's leader.
    pub session: i32,
    /// Clock ticks since boot: distinguishes two users of one pid.
    pub start_time: u64,
    /// Wait status, once it has ended.
    exit_status: i32,
}

impl Stat {
    /// Whether this is the process that started then, as far as that is known.
    pub fn is_of(&self, start_time: Option<u64>) -> bool {
        start_time.is_none_or(|start_time| start_time == self.start_time)
    }
}

/// The pids of this machine.
pub fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// When the process started; `None` also where that cannot be read now.
pub fn start_time(pid: i32) -> Option<u64> {
    stat(pid).map(|stat| stat.start_time)
}

/// `/proc/PID/stat`; `None` also where it cannot be read now.
pub fn stat(pid: i32) -> Option<Stat> {
    look(pid).ok().flatten()
}

/// Same as [`stat`]; `None` means exactly that the process does not exist.
///
/// # Errors
/// It is unknown: no descriptor or memory is left.
pub fn look(pid: i32) -> io::Result<Option<Stat>> {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(text) => Ok(parse(&text)),
        Err(e) if is_gone(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Whether the error means that the process does not exist. (Others mean that this process has no descriptor or memory
/// left.)
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT))
}

/// Fields as numbered in proc(5).
fn parse(text: &str) -> Option<Stat> {
    // The command name, in parentheses, may hold anything. The state behind it is field 3.
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    Some(Stat {
        ended: matches!(field(3)?, "Z" | "X"),
        parent: field(4)?.parse().ok()?,
        session: field(6)?.parse().ok()?,
        start_time: field(22)?.parse().ok()?,
        exit_status: field(52)?.parse().ok()?,
    })
}

/// Exit code and signal of a wait status, as shells count them.
pub fn decode_status(status: i32) -> (i32, Option<i32>) {
    match status & 0x7f {
        0 => ((status >> 8) & 0xff, None),
        signal => (128 + signal, Some(signal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn wait_statuses() {
        assert_eq!(decode_status(3 << 8), (3, None));
        assert_eq!(decode_status(9), (137, Some(9)));
        assert_eq!(decode_status(0x80 | 11), (139, Some(11)));
    }

    #[test]
    fn a_holder_learns_how_a_process_ended() {
        let mut child = Command::new("sh").args(["-c", "read x; exit 7"]).stdin(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let pidfd = open(pid).unwrap();
        let living = stat(pid).unwrap();
        assert!(!living.ended && u32::try_from(living.parent) == Ok(std::process::id()));
        assert_eq!(exit_status(&pidfd, pid), None);
        drop(child.stdin.take());
        while !stat(pid).unwrap().ended {
            std::thread::yield_now();
        }
        assert_eq!(stat(pid).unwrap().start_time, living.start_time);
        assert_eq!(exit_status(&pidfd, pid).map(decode_status), Some((7, None)), "not reaped");
        child.wait().unwrap();
        assert_eq!(stat(pid), None);
        assert!(signal(&pidfd, 0).is_err());
        // Before Linux 6.15 it is no longer available.
        if let Some(status) = exit_status(&pidfd, pid) {
            assert_eq!(decode_status(status), (7, None));
        }
    }
}
