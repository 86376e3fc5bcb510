//! One connection of the daemon.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use sampan_plugins_control::{FromHelper, ToHelper, VERSION};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use super::callers::Callers;
use super::lines::Lines;
use crate::orders::told;
use crate::shared::Shared;

/// Time for a caller to identify itself.
const GREETING: Duration = Duration::from_secs(5);
/// Timeout for writing one line.
const PATIENCE: Duration = Duration::from_secs(30);
/// Lines that wait for the daemon: all resources, and answers to its orders.
const LINES: usize = 256;
/// Pause when no connection can be accepted, without free descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// Accepts callers forever.
pub(crate) async fn accept(listener: &UnixListener, callers: &Rc<Callers>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => callers.came(|id| spawn_local(serve(Rc::clone(callers), id, stream)).abort_handle()),
            Err(error) => {
                log::warn!("no caller can be taken: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(callers: Rc<Callers>, id: u64, stream: UnixStream) {
    if let Err(error) = talk(&callers, id, stream).await
        && error.kind() != io::ErrorKind::UnexpectedEof
    {
        log::warn!("a caller is sent away: {error}");
    }
    callers.went(id);
}

async fn talk(callers: &Callers, id: u64, stream: UnixStream) -> io::Result<()> {
    let (read, write) = stream.into_split();
    let mut lines = Lines::new(read);
    let first = timeout(GREETING, lines.next()).await??;
    match serde_json::from_slice(&first) {
        Ok(ToHelper::Daemon { version: VERSION, node, settings }) => match callers.daemon(id, node, settings) {
            Some(shared) => control(callers, &shared, lines, write).await,
            None => {
                callers.end();
                Ok(())
            }
        },
        Ok(ToHelper::End {}) => {
            callers.end();
            Ok(())
        }
        // Of another version.
        _ if is_daemon(&first) => {
            callers.end();
            Ok(())
        }
        _ => Err(io::Error::other("its first line is no greeting")),
    }
}

/// Whether the line is the first one of a daemon, of any version.
fn is_daemon(line: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(line).is_ok_and(|line| line.get("daemon").is_some())
}

async fn control(
    callers: &Callers,
    shared: &Rc<Shared>,
    mut lines: Lines<OwnedReadHalf>,
    write: OwnedWriteHalf,
) -> io::Result<()> {
    let (tell, waiting) = mpsc::channel(LINES);
    shared.daemon_came(tell);
    tokio::select! {
        ended = hear(callers, shared, &mut lines) => ended,
        ended = say(write, waiting) => ended,
    }
}

async fn hear(callers: &Callers, shared: &Rc<Shared>, lines: &mut Lines<OwnedReadHalf>) -> io::Result<()> {
    loop {
        let line = lines.next().await?;
        match serde_json::from_slice(&line)? {
            ToHelper::Ping {} => shared.tell(&FromHelper::Pong {}),
            ToHelper::End {} => callers.end(),
            line => told(shared, line),
        }
    }
}

async fn say(mut write: OwnedWriteHalf, mut waiting: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    while let Some(line) = waiting.recv().await {
        timeout(PATIENCE, write.write_all(&line)).await??;
    }
    Err(io::Error::other("it does not read what it is told"))
}
