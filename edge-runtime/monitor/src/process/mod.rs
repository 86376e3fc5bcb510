//! The monitor process: set-up and its only loop. [`lifecycle`] handles containers, [`adopt`] those of a former
//! monitor.
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
mod runtime;
mod saved;
mod stdio;
mod token;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use sampan_sys::socket;
use sampan_sys::vec_map::VecMap;

use self::clients::Clients;
use self::container::{Container, Parent, State};
use self::detach::LOG_MAX;
use self::jobs::Job;
use self::oom::Kills;
use self::stdio::{Buffers, stamp};
use crate::exit::{self, ExitRecord};
use crate::files;
use crate::logs::cri::Stream;
use crate::protocol::{Answer, Call, Request, VERSION};

/// Calm before memory is given back.
pub(crate) const CALM: Duration = Duration::from_secs(5);

/// How long exits are collected for one report: the containers of a pod end together.
const GATHER: Duration = Duration::from_millis(3);

/// Characters of a line in the monitor's own log.
const LINE_MAX: usize = 1024;

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

/// Writes a line into the monitor's log. Never fails: the monitor must not stop. The log is not rotated, so it is
/// truncated when it is full.
pub(crate) fn note(text: &str) {
    note_in(&mut io::stderr(), text);
}

fn note_in(log: &mut (impl Write + AsFd), text: &str) {
    // A terminal or a pipe has no such length.
    if nix::sys::stat::fstat(&*log).is_ok_and(|file| u64::try_from(file.st_size).is_ok_and(|size| size > LOG_MAX)) {
        let _ = nix::unistd::ftruncate(&*log, 0);
    }
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LINE_MAX).collect();
    let _ = writeln!(log, "{} {line}", stamp());
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

    fn dispatch(&mut self, token: u64, flags: EpollFlags) {
        let (serial, kind) = token::split(token);
        match kind {
            token::Kind::Stdout => self.copy_output(serial, Stream::Stdout),
            token::Kind::Stderr => self.copy_output(serial, Stream::Stderr),
            token::Kind::Ended => self.adopted_ended(serial),
            token::Kind::Client => {
                if flags.contains(EpollFlags::EPOLLOUT) {
                    self.clients.writable(serial, &self.epoll);
                }
                for call in self.clients.read(serial) {
                    let answer = match call {
                        Ok(call) => self.obey(serial, call),
                        Err((seq, error)) => Some(Answer { answer: seq, error: Some(error), ..Answer::default() }),
                    };
                    if let Some(answer) = answer {
                        self.clients.send(serial, &answer, &self.epoll);
                    }
                }
            }
        }
    }

    /// Executes a request of a client; `None` if the answer comes later.
    fn obey(&mut self, client: u64, call: Call) -> Option<Answer> {
        // A daemon that only looks whether this process works touches next to nothing.
        if !matches!(call.request, Request::List) {
            self.trim_at = Some(Instant::now() + CALM);
        }
        let mut answer = Answer { answer: call.seq, ..Answer::default() };
        let done = match call.request {
            Request::Hello { .. } => {
                self.clients.greet(client);
                self.tell_log_trouble_to(client);
                answer.version = Some(VERSION);
                Ok(())
            }
            Request::Start(spec) => self.enqueue(*spec),
            Request::Kill { id, signal } => self.kill(client, &id, signal),
            Request::Delete { id } => match self.delete(&id, (client, call.seq)) {
                Ok(true) => Ok(()),
                Ok(false) => return None,
                Err(e) => Err(e),
            },
            Request::Forget { id } => self.forget(&id),
            Request::List => {
                answer.containers = Some(self.list());
                Ok(())
            }
            Request::Attach { id } => self.attach(client, &id),
            Request::Input { id, data } => self.input(&id, &data).map(|taken| answer.taken = Some(taken)),
            Request::Resize { id, size } => self.resize(&id, size),
            Request::CloseStdin { id } => self.close_stdin(&id),
            Request::Shutdown => self.shutdown(),
        };
        answer.error = done.err();
        Some(answer)
    }

    fn shutdown(&mut self) -> Result<(), String> {
        if !self.containers.is_empty() {
            return Err(format!("{} containers are known", self.containers.len()));
        }
        self.finished = true;
        Ok(())
    }

    /// What cannot be waited for is looked at here; returns when to look again.
    fn tick(&mut self) -> EpollTimeout {
        self.look_at_inherited_starts();
        self.look_at_adopted();
        let held_up = self.look_at_held_up();
        if self.untold_since.is_some_and(|since| since.elapsed() >= GATHER) {
            self.tell_exits();
        }
        let unread = self.look_at_unread();
        let log_trouble = self.look_at_logs();
        let jobs = self.look_at_jobs();
        let soon = self.containers.values().any(|c| match &c.state {
            State::Starting { runtime_pid: None, .. } => true,
            State::Running(r) => matches!(&r.parent, Parent::Other { ended: Some(_), .. }),
            _ => false,
        });
        let unwatched = self
            .containers
            .values()
            .any(|c| matches!(&c.state, State::Running(r) if matches!(&r.parent, Parent::Other { pidfd: None, .. })));
        let calm_in = self.trim_at.map(|at| at.saturating_duration_since(Instant::now()));
        if calm_in.is_some_and(|wait| wait.is_zero()) {
            self.trim_at = None;
            sampan_memory::trim();
        }
        if self.untold_since.is_some() {
            return EpollTimeout::try_from(GATHER).unwrap_or(EpollTimeout::ZERO);
        }
        let look = match (soon, unwatched) {
            (true, _) => Some(Duration::from_millis(10)),
            (_, true) => Some(Duration::from_millis(250)),
            _ if held_up => Some(Duration::from_millis(250)),
            _ if unread => Some(CALM),
            _ => self.trim_at.map(|_| CALM),
        };
        // Rounded up: a look that is too early by less than a millisecond would be repeated in a tight loop.
        let next = [look, log_trouble, jobs].into_iter().flatten().min().map(|wait| wait + Duration::from_millis(1));
        next.map_or(EpollTimeout::NONE, |wait| EpollTimeout::try_from(wait).unwrap_or(EpollTimeout::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_full_begins_anew_and_its_lines_are_short() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("monitor.log");
        // As `detach` opens it.
        let mut log = File::options().create(true).append(true).open(&path).unwrap();
        log.write_all(&vec![b'x'; usize::try_from(LOG_MAX).unwrap()]).unwrap();
        note_in(&mut log, "the last");
        assert!(fs::metadata(&path).unwrap().len() > LOG_MAX, "it was not full yet");
        note_in(&mut log, "the first\nof a new log");
        note_in(&mut log, &"y".repeat(2 * LINE_MAX));
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].ends_with(" the first of a new log"), "{text}");
        assert!(lines[1].ends_with(&format!(" {}", "y".repeat(LINE_MAX))), "{text}");
    }
}
