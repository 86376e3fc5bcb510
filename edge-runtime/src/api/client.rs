//! Keeps a helper running and is connected to it: takes over the helper of an earlier daemon, and restarts one that has
//! ended. The caller processes the messages.

use std::cell::Cell;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sampan_api_control::{FromHelper, Settings, ToHelper, VERSION};
use smol::channel::{Receiver, Sender, WeakSender, bounded};
use smol::future::{FutureExt, pending};
use smol::{Async, Timer};

use crate::counters;
use crate::devices::lines::{self, Lines};
use crate::sys::helper;
use crate::sys::time::within;

/// Timeout for the first line: a helper that hangs accepts connections, too.
const GREETING: Duration = Duration::from_secs(5);
/// Before another one is started when one has ended: doubled each time.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_AT_MOST: Duration = Duration::from_secs(60);
/// A helper that lived this long does not count as a failure.
const PROVEN: Duration = Duration::from_secs(60);
/// Timeout for writing one line; a slower helper hangs. A helper that is silent for this time is pinged, and hangs if
/// it stays silent for as long again.
const PATIENCE: Duration = Duration::from_secs(30);
/// Lines that wait for the socket; the rest waits as names at the caller.
const LINES: usize = 16;

/// How the helper is started and greeted.
#[derive(Clone, Debug)]
pub struct Helper {
    pub program: PathBuf,
    pub socket: PathBuf,
    pub node: String,
    pub settings: Settings,
}

/// An event of the helper, in order.
#[derive(Debug)]
pub enum Heard {
    /// A helper is up and has no state. Everything must be sent to this connection.
    Up(u64),
    Line(FromHelper),
    /// There is room for more lines again.
    Room,
    Down(String),
}

/// A line, and for which connection.
type Told = (u64, ToHelper);

/// Tells the helper.
#[derive(Debug)]
pub struct Teller {
    lines: Sender<Told>,
    waiting: Rc<Cell<bool>>,
}

impl Teller {
    /// Sends a line. Returns false if the queue is full: retry after [`Heard::Room`].
    pub fn tell(&self, connection: u64, line: ToHelper) -> bool {
        let told = self.lines.try_send((connection, line)).is_ok();
        self.waiting.set(!told);
        told
    }

    pub fn has_room(&self) -> bool {
        let room = !self.lines.is_full();
        self.waiting.set(!room);
        room
    }
}

impl Helper {
    /// Returns the sender of lines to the helper, and the task that keeps a helper running.
    pub fn keep<F>(self, heard: impl Fn(Heard) -> F + 'static) -> (Teller, impl Future<Output = ()> + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let (sender, receiver) = bounded(LINES);
        let waiting = Rc::new(Cell::new(false));
        // The task ends when the last sender is gone.
        let own = sender.downgrade();
        let teller = Teller { lines: sender, waiting: Rc::clone(&waiting) };
        let work = async move {
            let (mut pause, mut connection) = (PAUSE, 0);
            loop {
                connection += 1;
                let since = Instant::now();
                let ended = match self.stream().await {
                    Ok(stream) => self.serve(stream, connection, (&own, &receiver), &waiting, &heard).await,
                    Err(error) => error,
                };
                if receiver.is_closed() {
                    return;
                }
                counters::LOST_API.one();
                log::warn!("edge-api has ended ({ended}); another one is started");
                heard(Heard::Down(ended.to_string())).await;
                pause = if since.elapsed() > PROVEN { PAUSE } else { pause };
                Timer::after(pause).await;
                pause = (pause * 2).min(PAUSE_AT_MOST);
            }
        };
        (teller, work)
    }

    /// Until the connection ends.
    async fn serve<F: Future<Output = ()>>(
        &self,
        stream: Async<UnixStream>,
        connection: u64,
        (own, told): (&WeakSender<Told>, &Receiver<Told>),
        waiting: &Cell<bool>,
        heard: &impl Fn(Heard) -> F,
    ) -> io::Error {
        let stream = Arc::new(stream);
        let greeting = ToHelper::Daemon { version: VERSION, node: self.node.clone(), settings: self.settings.clone() };
        let say = async {
            let mut out = &*stream;
            lines::write(&mut out, &greeting).await?;
            loop {
                // The caller has gone when the node ends.
                let (of, line) = told.recv().await.map_err(|_| io::Error::from(io::ErrorKind::Interrupted))?;
                if of == connection {
                    let written = within(PATIENCE, lines::write(&mut out, &line)).await;
                    match written.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into())) {
                        // The helper does not read any more because it ends. Its earlier messages are still read, up to
                        // the end of the stream.
                        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => pending().await,
                        written => written?,
                    }
                }
                if told.is_empty() && waiting.take() {
                    heard(Heard::Room).await;
                }
            }
        };
        let hear = async {
            let mut lines = Lines::new(&*stream);
            let hello = within(GREETING, lines.next()).await;
            match hello.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))? {
                FromHelper::Hello { version: VERSION } => heard(Heard::Up(connection)).await,
                FromHelper::Hello { version } => {
                    return Err(io::Error::other(format!("it speaks version {version}, and this program {VERSION}")));
                }
                _ => return Err(io::Error::other("its first line is no greeting")),
            }
            let mut asked = false;
            loop {
                match within(PATIENCE, lines.next()).await {
                    Some(line) => {
                        asked = false;
                        heard(Heard::Line(line?)).await;
                    }
                    None if asked => return Err(io::ErrorKind::TimedOut.into()),
                    None => {
                        asked = true;
                        // Without room the ping is dropped: a helper that does not read is ended elsewhere.
                        if let Some(own) = own.upgrade() {
                            let _ = own.try_send((connection, ToHelper::Ping {}));
                        }
                    }
                }
            }
        };
        let ended: io::Result<()> = say.or(hear).await;
        let ended = ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into());
        if ended.kind() == io::ErrorKind::TimedOut {
            helper::kill_hung(&stream);
        }
        ended
    }

    async fn stream(&self) -> io::Result<Async<UnixStream>> {
        let start = || {
            let mut command = smol::process::Command::new(&self.program);
            command.arg("--socket").arg(&self.socket);
            command
        };
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", self.program.display()));
        helper::connect_or_start(&self.socket, start).await.map_err(named)
    }
}

/// The helper's program: beside the daemon's, also when that was replaced while it runs.
pub fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.with_file_name("edge-api")
}

/// Ends a helper that an earlier daemon has left; no error without one.
pub fn end(socket: &Path) {
    let mut line = serde_json::to_vec(&ToHelper::End {}).unwrap_or_default();
    line.push(b'\n');
    helper::end(socket, &line);
}
