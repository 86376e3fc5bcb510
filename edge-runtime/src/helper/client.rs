//! Keeps a helper running and is connected to it: takes over the helper of an earlier daemon, and restarts one that has
//! ended. The caller processes the messages.
//!
//! All but the parsing of a message works on lines, and is in the program once for all helpers.

use std::cell::Cell;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use smol::channel::{Receiver, Sender, WeakSender, bounded};
use smol::future::{FutureExt, pending};
use smol::io::AsyncWriteExt;
use smol::{Async, Timer};

use super::lines::{self, Lines};
use super::programs::{PING, Program};
use crate::paths::Paths;
use crate::sys::from_json::from_json;
use crate::sys::helper;
use crate::sys::time::{io_within, within};

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

/// How a helper is started and greeted.
pub struct Helper {
    program: &'static Program,
    path: PathBuf,
    socket: PathBuf,
    /// A line with its end.
    greeting: Vec<u8>,
}

/// An event of the helper, in order. `L`: its messages.
#[derive(Debug)]
pub enum Heard<L> {
    /// A helper is up and has no state. Everything must be sent to this connection.
    Up(u64),
    Line(L),
    /// There is room for more lines again.
    Room,
    Down(String),
}

impl Heard<Vec<u8>> {
    /// Parses the line, if it is one.
    ///
    /// # Errors
    /// It is not a message of the helper.
    pub fn read<L: DeserializeOwned>(self) -> io::Result<Heard<L>> {
        Ok(match self {
            Self::Up(connection) => Heard::Up(connection),
            Self::Line(line) => Heard::Line(from_json(&line)?),
            Self::Room => Heard::Room,
            Self::Down(why) => Heard::Down(why),
        })
    }
}

/// Makes the caller's news of an event. An error means that the line is not a message of the helper, and ends the connection.
type Read<N> = fn(Heard<Vec<u8>>) -> io::Result<N>;

/// A line with its end, and for which connection.
type Told = (u64, Vec<u8>);

/// Tells the helper.
pub struct Teller {
    program: &'static Program,
    lines: Sender<Told>,
    waiting: Rc<Cell<bool>>,
}

impl Teller {
    /// Sends a line. Returns false if the queue is full: retry after [`Heard::Room`].
    pub fn tell(&self, connection: u64, line: &impl Serialize) -> bool {
        self.tell_line(connection, lines::line(line))
    }

    /// Sends a line that has its end, as [`Teller::tell`] does.
    pub fn tell_line(&self, connection: u64, line: Vec<u8>) -> bool {
        if line.len() > self.program.max_line {
            // The helper would end the connection, and again every one after it.
            log::error!("{} is not told a line of {} bytes", self.program.called, line.len());
            return true;
        }
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
    /// `greeting`: the first line of a connection.
    pub fn new(program: &'static Program, paths: &Paths, greeting: &impl Serialize) -> Self {
        let greeting = lines::line(greeting);
        Self { program, path: program.path(), socket: (program.socket)(paths), greeting }
    }

    /// Returns the sender of lines to the helper, and the task that keeps a helper running and sends `news` of it. There is one
    /// `N` in the program, so the task is there once.
    pub fn keep<N: 'static>(self, news: Sender<N>, read: Read<N>) -> (Teller, impl Future<Output = ()> + 'static) {
        let Self { program, path, socket, greeting } = self;
        let (sender, told) = bounded(LINES);
        let waiting = Rc::new(Cell::new(false));
        let kept = Kept {
            program,
            path,
            socket,
            greeting,
            // The task ends when the last sender is gone.
            own: sender.downgrade(),
            told,
            waiting: Rc::clone(&waiting),
            news,
            read,
        };
        (Teller { program, lines: sender, waiting }, kept.run())
    }
}

/// A helper that is kept running.
struct Kept<N> {
    program: &'static Program,
    path: PathBuf,
    socket: PathBuf,
    greeting: Vec<u8>,
    own: WeakSender<Told>,
    told: Receiver<Told>,
    waiting: Rc<Cell<bool>>,
    news: Sender<N>,
    read: Read<N>,
}

impl<N> Kept<N> {
    async fn run(self) {
        let (mut pause, mut connection) = (PAUSE, 0);
        loop {
            connection += 1;
            let since = Instant::now();
            let ended = match self.stream().await {
                Ok(stream) => self.serve(stream, connection).await,
                Err(error) => error,
            };
            if self.told.is_closed() {
                return;
            }
            self.program.lost.one();
            log::warn!("{} has ended ({ended}); another one is started", self.program.called);
            // Only lines can be wrong.
            let _ = self.hear(Heard::Down(ended.to_string())).await;
            pause = if since.elapsed() > PROVEN { PAUSE } else { pause };
            Timer::after(pause).await;
            pause = (pause * 2).min(PAUSE_AT_MOST);
        }
    }

    /// Until the connection ends.
    async fn serve(&self, stream: Async<UnixStream>, connection: u64) -> io::Error {
        let say = async {
            let mut out = &stream;
            out.write_all(&self.greeting).await?;
            loop {
                // The caller has gone when the node ends.
                let (of, line) = self.told.recv().await.map_err(|_| io::Error::from(io::ErrorKind::Interrupted))?;
                if of == connection {
                    match io_within(PATIENCE, out.write_all(&line)).await {
                        // The helper does not read any more because it ends. Its earlier messages are still read, up to
                        // the end of the stream.
                        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => pending().await,
                        written => written?,
                    }
                }
                if self.told.is_empty() && self.waiting.take() {
                    self.hear(Heard::Room).await?;
                }
            }
        };
        let hear = async {
            let mut lines = Lines::new(&stream, self.program.max_line);
            let hello = io_within(GREETING, lines.next()).await?;
            lines::check_greeting(&hello, self.program.version)?;
            self.hear(Heard::Up(connection)).await?;
            let mut asked = false;
            loop {
                match within(PATIENCE, lines.next()).await {
                    Some(line) => {
                        asked = false;
                        self.hear(Heard::Line(line?)).await?;
                    }
                    None if asked => return Err(io::Error::from(io::ErrorKind::TimedOut)),
                    None => {
                        asked = true;
                        // Without room the ping is dropped: a helper that does not read is ended elsewhere.
                        if let Some(own) = self.own.upgrade() {
                            let _ = own.try_send((connection, PING.to_vec()));
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

    async fn hear(&self, event: Heard<Vec<u8>>) -> io::Result<()> {
        let news = (self.read)(event)?;
        // The receiver goes only when the process ends.
        drop(self.news.send(news).await);
        Ok(())
    }

    async fn stream(&self) -> io::Result<Async<UnixStream>> {
        let start = || {
            let mut command = smol::process::Command::new(&self.path);
            command.arg("--socket").arg(&self.socket);
            command
        };
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display()));
        helper::connect_or_start(&self.socket, start).await.map_err(named)
    }
}

#[cfg(test)]
mod tests;
