//! One caller: its lines go to the loop one by one, and the loop's answers wait in a short queue.

use std::io;
use std::time::Duration;

use sampan_devices_control::{MAX_LINE, ToHelper};
use sampan_helper::{Lines, Listening, Teller, Waiting, is_daemon, queue};
use serde::Serialize;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Lines that wait for a caller.
const LINES: usize = 64;
/// Timeout for writing what waits for a caller when the helper ends.
const LAST: Duration = Duration::from_secs(5);

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
    lines: Teller,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
}

impl Connection {
    /// Whether it found room.
    pub(super) fn tell(&self, line: &impl Serialize) -> bool {
        self.lines.tell(line)
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
        let _ = timeout(LAST, self.writer).await;
    }
}

/// Accepts callers forever.
pub async fn accept(listening: &Listening, heard: mpsc::Sender<Heard>) {
    let mut id = 0;
    loop {
        let stream = listening.caller().await;
        id += 1;
        // Reserves a place before its reader starts: the loop must know a caller before its first line.
        let Ok(place) = heard.reserve().await else { return };
        place.send(Heard::Came(id, start(stream, id, heard.clone())));
    }
}

fn start(stream: UnixStream, id: u64, heard: mpsc::Sender<Heard>) -> Connection {
    let (read, write) = stream.into_split();
    let (lines, waiting) = queue(LINES, MAX_LINE);
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
    let mut lines = Lines::new(read, MAX_LINE);
    let mut first = Some(lines.first().await?);
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

async fn say(mut write: OwnedWriteHalf, waiting: Waiting) -> io::Result<()> {
    waiting.write(&mut write).await?;
    write.shutdown().await
}
