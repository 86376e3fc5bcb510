//! A process inside a running container with a client at its standard streams: `kubectl exec`.
//!
//! The OCI runtime stays between the daemon and the process until the process ends. With `exec --detach` it would exit
//! early, but then the reaper of orphans, not the daemon, would get the exit code. And it accepts a console socket only
//! with `--detach`. So with `tty` the runtime gets a terminal of the daemon, and passes bytes and size on to the
//! terminal in the container.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use smol::Async;
use smol::process::{Child, Command, Stdio};

use super::output::Output;
use super::process::Process;
use super::{ExecError, Runtime, code, terminal_process};
use crate::sys::terminal::{self, Size};
use sampan_monitor::oci;

/// Streams that the client wants; the others are `/dev/null`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    /// A terminal in place of the three. What the process writes then comes as `stdout`.
    pub tty: bool,
}

/// Our ends. Dropping `stdin` closes it, unless it is a terminal.
pub struct Streams {
    pub stdin: Option<Async<File>>,
    /// Ends with an error instead of an end of file where it is a terminal ([`terminal::is_hung_up`]).
    pub stdout: Option<Output>,
    pub stderr: Option<Output>,
}

/// The running process. Dropping it kills the process, its children and its session.
pub struct Session {
    child: Child,
    runtime: Runtime,
    process: Process,
    terminal: Rc<Terminal>,
}

impl Session {
    /// Starts `argv` in container `id` with the environment, user, folder and capabilities of its first process.
    ///
    /// Needs [`smol::process::driver`] to run somewhere.
    ///
    /// # Errors
    /// The OCI runtime cannot be started; what it thinks of container and command, [`Session::ended`] tells.
    pub fn start(runtime: &Runtime, id: &str, argv: &[String], wanted: Wanted) -> Result<(Self, Streams), ExecError> {
        let failed = |source| ExecError::Runtime { program: runtime.program.clone(), source };
        let mut process = Process::new(&runtime.root, id).map_err(failed)?;
        let mut command = runtime.exec(&process);
        // More threads for its collector only cost.
        command.env("GOMAXPROCS", "1");
        if wanted.tty {
            let file = process.folder.join("process.json");
            terminal_process::write(&runtime.bundle, argv, &file).map_err(failed)?;
            command.arg("--process").arg(file).arg(id);
        } else {
            command.arg(id).args(argv);
        }
        let (streams, master) = connect(&mut command, wanted).map_err(failed)?;
        let child = command.spawn().map_err(failed)?;
        process.runtime_pid = i32::try_from(child.id()).unwrap_or(0);
        let terminal = Rc::new(Terminal { master, runtime_pid: Cell::new(process.runtime_pid) });
        Ok((Self { child, runtime: runtime.clone(), process, terminal }, streams))
    }

    /// The process's terminal, to be given another size while [`Session::ended`] waits.
    #[must_use]
    pub fn terminal(&self) -> Rc<Terminal> {
        Rc::clone(&self.terminal)
    }

    /// Waits for the end of the process: its exit code, 128 + signal for a death by signal. The streams end then too.
    ///
    /// # Errors
    /// The OCI runtime could not start it: no such executable, container gone, ...
    pub async fn ended(&mut self) -> Result<i32, ExecError> {
        let failed = |source| ExecError::Runtime { program: self.runtime.program.clone(), source };
        let status = self.child.status().await.map_err(failed)?;
        self.process.runtime_pid = 0;
        self.terminal.runtime_pid.set(0);
        if !status.success() && oci::has_failed(&self.process.folder) {
            return Err(ExecError::NotStarted(oci::failure(&self.process.folder, "")));
        }
        Ok(code(status))
    }
}

/// The terminal of a session, if it has one.
pub struct Terminal {
    master: Option<File>,
    /// Zero once the OCI runtime has returned.
    runtime_pid: Cell<i32>,
}

impl Terminal {
    /// Does nothing for a session without a terminal, and after its end.
    pub fn resize(&self, size: Size) {
        let (Some(master), pid @ 1..) = (&self.master, self.runtime_pid.get()) else { return };
        if let Err(error) = terminal::resize(master, size) {
            log::debug!("terminal of an exec: {error}");
        }
        // Ours is not the runtime's controlling terminal, so the kernel does not tell it.
        let _ = kill(Pid::from_raw(pid), Signal::SIGWINCH);
    }
}

/// Gives the command its ends; the command must be dropped for them to close.
fn connect(command: &mut Command, wanted: Wanted) -> io::Result<(Streams, Option<File>)> {
    let async_file = |fd: OwnedFd| Async::new(File::from(fd));
    if wanted.tty {
        let (master, slave) = terminal::open_raw()?;
        command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
        let stdin = wanted.stdin.then(|| master.try_clone().and_then(Async::new)).transpose()?;
        let stdout = Some(Output::terminal(Async::new(master.try_clone()?)?));
        return Ok((Streams { stdin, stdout, stderr: None }, Some(master)));
    }
    let mut streams = Streams { stdin: None, stdout: None, stderr: None };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if wanted.stdin {
        let (reader, writer) = io::pipe()?;
        command.stdin(reader);
        streams.stdin = Some(async_file(writer.into())?);
    }
    if wanted.stdout {
        let (reader, writer) = io::pipe()?;
        command.stdout(writer);
        streams.stdout = Some(Output::plain(async_file(reader.into())?));
    }
    if wanted.stderr {
        let (reader, writer) = io::pipe()?;
        command.stderr(writer);
        streams.stderr = Some(Output::plain(async_file(reader.into())?));
    }
    Ok((streams, None))
}
