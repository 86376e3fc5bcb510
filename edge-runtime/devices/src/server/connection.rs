//! One caller: its lines go to the loop one by one, and the loop's answers wait in a short queue.

use std::io;
use std::time::Duration;

use sampan_devices_control::{MAX_LINE, ToHelper};
use serde::Serialize;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::lines::Lines;

/// Lines that wait for a caller.
const LINES: usize = 64;
/// Timeout for writing one line to a client.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time for a caller to identify itself.
const GREETING: Duration = Duration::from_secs(5);
/// Pause when no connection can be accepted, without free descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// An event of callers.
#[derive(Debug)]
pub enum Heard {
    Came(u64, Connection),
    Said(u64, Said),
    Went(u64),
}

/// A line.
#[derive(Debug)]
pub enum Said {
    Line(Box<ToHelper>),
    /// A daemon whose words this build does not know.
    OtherDaemon,
}

/// The loop's end of a connection.
#[derive(Debug)]
pub struct Connection {
    lines: mpsc::Sender<Vec<u8>>,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
}

impl Connection {
    /// Whether it found room.
    pub(super) fn tell(&self, line: &impl Serialize) -> bool {
        let Ok(mut text) = serde_json::to_vec(line) else { return false };
        if text.len() > MAX_LINE {
            // The caller would end the connection, and again every one after it.
            log::error!("a line of {} bytes is not said", text.len());
            return true;
        }
        text.push(b'\n');
        self.lines.try_send(text).is_ok()
    }

    /// Ends it; what waits is lost.
    pub(super) fn cut(self) {
        self.reader.abort();
        self.writer.abort();
    }

    /// Ends it when what waits has been written.
    pub(super) async fn finish(self) {
        self.reader.abort();
        drop(self.lines);
        // A caller that does not read has had its time.
        let _ = timeout(PATIENCE / 6, self.writer).await;
    }
}

/// Accepts callers forever.
pub async fn accept(listener: &UnixListener, heard: mpsc::Sender<Heard>) {
    let mut id = 0;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                id += 1;
                // Reserves a place before its reader starts: the loop must know a caller before its first line.
                let Ok(place) = heard.reserve().await else { return };
                place.send(Heard::Came(id, start(stream, id, heard.clone())));
            }
            Err(error) => {
                log::warn!("no caller can be taken: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

fn start(stream: UnixStream, id: u64, heard: mpsc::Sender<Heard>) -> Connection {
    let (read, write) = stream.into_split();
    let (lines, waiting) = mpsc::channel(LINES);
    let gone = heard.clone();
    let reader = tokio::spawn(async move {
        if let Err(error) = hear(read, id, &heard).await
            && error.kind() != io::ErrorKind::UnexpectedEof
        {
            log::warn!("a caller is sent away: {error}");
        }
        // Fails only when the loop has ended.
        let _ = heard.send(Heard::Went(id)).await;
    });
    let writer = tokio::spawn(async move {
        if say(write, waiting).await.is_err() {
            let _ = gone.send(Heard::Went(id)).await;
        }
    });
    Connection { lines, reader, writer }
}

async fn hear(read: OwnedReadHalf, id: u64, heard: &mpsc::Sender<Heard>) -> io::Result<()> {
    let mut lines = Lines::new(read);
    let mut first = Some(timeout(GREETING, lines.next()).await??);
    loop {
        let is_first = first.is_some();
        let line = match first.take() {
            Some(line) => line,
            None => lines.next().await?,
        };
        let said = match serde_json::from_slice(&line) {
            Ok(line) => Said::Line(Box::new(line)),
            Err(_) if is_first && is_daemon(&line) => Said::OtherDaemon,
            Err(error) => return Err(error.into()),
        };
        if heard.send(Heard::Said(id, said)).await.is_err() {
            return Ok(());
        }
    }
}

/// Whether the line is the first one of a daemon, of any version.
fn is_daemon(line: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(line).is_ok_and(|line| line.get("daemon").is_some())
}

async fn say(mut write: OwnedWriteHalf, mut waiting: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    while let Some(line) = waiting.recv().await {
        timeout(PATIENCE, write.write_all(&line)).await??;
    }
    write.shutdown().await
}
