//! One container in the monitor's memory.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use super::stdio::Output;
use crate::exit::ExitRecord;
use crate::protocol::{ContainerState, Phase, StartContainer};
use sampan_sys::pidfd;

pub(crate) struct Container {
    /// Number of the epoll tokens.
    pub(crate) serial: u64,
    pub(crate) spec: StartContainer,
    pub(crate) state: State,
    /// Open from the start until the end.
    pub(crate) output: Option<Output>,
    /// Where the OCI runtime sends the terminal of a container that is being started with one.
    pub(crate) console: Option<UnixListener>,
    /// Time since which an attached client does not keep up, and the container's output is not read.
    pub(crate) held_up: Option<Instant>,
}

pub(crate) enum State {
    /// Waits for a free worker.
    Queued,
    /// The OCI runtime is running: as a child of this monitor, or of a former one.
    Starting {
        runtime_pid: Option<i32>,
        /// Signals that arrived meanwhile.
        signals: Vec<i32>,
        /// Timeout of a start by a former monitor; for its own starts the job has it.
        deadline: Instant,
        /// It was not.
        killed: bool,
    },
    /// `delete --force` is at work after a failed start.
    CleaningUp {
        message: String,
    },
    Running(Running),
    Exited(ExitRecord),
    Failed {
        message: String,
    },
}

impl State {
    pub(crate) fn starting(runtime_pid: Option<i32>, within: Duration) -> Self {
        Self::Starting { runtime_pid, signals: Vec::new(), deadline: Instant::now() + within, killed: false }
    }
}

pub(crate) struct Running {
    pub(crate) pid: i32,
    pub(crate) started_at: String,
    pub(crate) parent: Parent,
}

/// The process that reaps the container's first process.
pub(crate) enum Parent {
    /// This monitor, by SIGCHLD.
    Us,
    /// Another process, since a former monitor died: the pidfd reports the end. `None` before Linux 5.3: checked by
    /// timer.
    Other {
        pidfd: Option<OwnedFd>,
        start_time: Option<u64>,
        /// It has ended, but how cannot be asked for yet.
        ended: Option<Instant>,
    },
}

impl Running {
    /// Sends a signal. A late one is not an error: the exit will be reported.
    pub(crate) fn signal(&self, signal: i32) -> std::io::Result<()> {
        let sent = match &self.parent {
            // Only this process reaps it, so the pid is still this container's.
            Parent::Us => send(self.pid, signal),
            Parent::Other { pidfd: Some(pidfd), .. } => pidfd::signal(pidfd, signal),
            Parent::Other { pidfd: None, start_time, .. } => {
                let is_it = pidfd::look(self.pid)?.is_some_and(|stat| stat.is_of(*start_time));
                if is_it { send(self.pid, signal) } else { Ok(()) }
            }
        };
        match sent {
            Err(e) if e.raw_os_error() == Some(nix::libc::ESRCH) => Ok(()),
            other => other,
        }
    }
}

/// By pidfd where there is one, because it also takes real-time signals (an image's STOPSIGNAL may be one).
fn send(pid: i32, signal: i32) -> std::io::Result<()> {
    match pidfd::open(pid) {
        Ok(pidfd) => pidfd::signal(&pidfd, signal),
        Err(e) if pidfd::is_gone(&e) => Err(e),
        // Before Linux 5.3, or no descriptor is left.
        Err(_) => {
            let signal = nix::sys::signal::Signal::try_from(signal)?;
            Ok(nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal)?)
        }
    }
}

impl Container {
    pub(crate) fn view(&self) -> ContainerState {
        let phase = match &self.state {
            State::Queued | State::Starting { .. } | State::CleaningUp { .. } => Phase::Starting,
            State::Running(r) => Phase::Running { pid: r.pid, started_at: r.started_at.clone() },
            State::Exited(record) => Phase::Exited(record.clone()),
            State::Failed { message } => Phase::Failed { message: message.clone() },
        };
        ContainerState { id: self.spec.id.clone(), phase }
    }
}
