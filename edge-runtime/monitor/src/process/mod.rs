//! The monitor process: set-up and its only loop. [`requests`] executes what clients ask, [`wake`] decides how long the
//! loop sleeps, [`lifecycle`] handles containers, [`adopt`] those of a former monitor.
//!
//! Waits for no disk: it does not sync, and writes go into the page cache. (A kernel that throttles writers on a slow
//! medium delays it, too.)

mod adopt;
mod attached;
mod cgroup;
mod clients;
mod console;
mod container;
pub mod detach;
mod ending;
mod jobs;
mod lifecycle;
mod log_trouble;
mod oom;
mod own_log;
mod requests;
mod runtime;
mod saved;
mod stdio;
mod token;
mod wake;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use sampan_sys::socket;
use sampan_sys::vec_map::VecMap;

use self::clients::Clients;
use self::container::Container;
use self::jobs::Job;
use self::oom::Kills;
pub(crate) use self::own_log::note;
use self::stdio::Buffers;
use crate::exit::{self, ExitRecord};
use crate::files;

/// Calm before memory is given back.
pub(crate) const CALM: Duration = Duration::from_secs(5);

/// How this monitor works; given on its command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node's run folder.
    pub run: PathBuf,
    /// OCI runtime processes at work at the same time.
    pub workers: usize,
    /// Added to the environment of the OCI runtime.
    pub environment: Vec<(String, String)>,
    /// How long one of its processes may take.
    pub runtime_timeout: Duration,
}

pub(crate) struct Monitor {
    pub(crate) options: Options,
    pub(crate) epoll: Epoll,
    pub(crate) clients: Clients,
    pub(crate) containers: VecMap<String, Container>,
    pub(crate) next_serial: u64,
    /// Ids that wait for a worker, first come first served.
    pub(crate) queue: VecDeque<String>,
    /// Jobs by pid.
    pub(crate) jobs: VecMap<i32, Job>,
    /// Children that ended before the OCI runtime reported their container: pid and wait status.
    pub(crate) early_exits: VecMap<i32, i32>,
    pub(crate) buffers: Buffers,
    /// When to give memory back; put off by whatever happens to containers.
    pub(crate) trim_at: Option<Instant>,
    /// Exits that are not recorded or reported yet, and when the first of them was seen.
    pub(crate) untold: Vec<ExitRecord>,
    pub(crate) untold_since: Option<Instant>,
    pub(crate) kills: Kills,
    /// Look for dead children although no SIGCHLD came.
    pub(crate) look_for_dead: bool,
    /// The last report of logs that cannot be written, and its time.
    pub(crate) log_trouble: Option<String>,
    pub(crate) log_trouble_at: Instant,
    /// Time of the last check for unread output.
    pub(crate) unread_at: Option<Instant>,
    finished: bool,
}

/// Runs the monitor of this root until a shutdown request. Calls `ready` once the socket accepts connections. Returns
/// at once, without an error, when another monitor is alive.
///
/// # Errors
/// The set-up failed: folders, socket, epoll.
pub fn run(options: Options, ready: impl FnOnce()) -> io::Result<()> {
    fs::create_dir_all(&options.run)?;
    fs::create_dir_all(files::exits(&options.run))?;
    let lock = File::options().create(true).write(true).truncate(false).mode(0o600).open(files::lock(&options.run))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Ok(()),
        Err(fs::TryLockError::Error(e)) => return Err(e),
    }
    nix::sys::prctl::set_child_subreaper(true)?;
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    mask.thread_block()?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&signals, EpollEvent::new(EpollFlags::EPOLLIN, token::SIGNALS))?;

    let socket_path = files::socket(&options.run);
    let mut monitor = Monitor {
        options,
        epoll,
        clients: Clients::default(),
        containers: VecMap::new(),
        next_serial: 0,
        queue: VecDeque::new(),
        jobs: VecMap::new(),
        early_exits: VecMap::new(),
        buffers: Buffers::new(),
        trim_at: Some(Instant::now()),
        untold: Vec::new(),
        untold_since: None,
        kills: Kills::default(),
        look_for_dead: false,
        log_trouble: None,
        log_trouble_at: Instant::now(),
        unread_at: None,
        finished: false,
    };
    exit::clear_temporaries(&files::exits(&monitor.options.run));
    monitor.adopt()?;
    monitor.tell_exits();
    // Only now, so that every client gets a complete list.
    let listener = socket::listen(&socket_path, 0o600)?;
    listener.set_nonblocking(true)?;
    monitor.epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, token::LISTENER))?;
    ready();
    monitor.serve(&listener, &signals)?;
    fs::remove_file(socket_path)
}

impl Monitor {
    fn serve(&mut self, listener: &UnixListener, signals: &SignalFd) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); 32];
        while !self.finished {
            while std::mem::take(&mut self.look_for_dead) {
                self.reap();
            }
            let timeout = self.tick();
            if self.look_for_dead {
                continue;
            }
            let count = match self.epoll.wait(&mut events, timeout) {
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(e) => return Err(e.into()),
            };
            for event in &events[..count] {
                match event.data() {
                    token::LISTENER => self.clients.accept(listener, &self.epoll),
                    token::SIGNALS => {
                        while let Ok(Some(_)) = signals.read_signal() {}
                        self.look_for_dead = true;
                    }
                    other => self.dispatch(other, event.events()),
                }
            }
        }
        Ok(())
    }
}
