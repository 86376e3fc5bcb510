//! One connection of the daemon.

use std::io;
use std::rc::Rc;

use sampan_helper::{Lines, Listening, Waiting, is_daemon, queue};
use sampan_plugins_control::{FromHelper, MAX_LINE, ToHelper, VERSION};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::spawn_local;

use super::callers::Callers;
use crate::orders::told;
use crate::shared::Shared;

/// Lines that wait for the daemon: all resources, and answers to its orders.
const LINES: usize = 256;

/// Accepts callers forever.
pub(crate) async fn accept(listening: &Listening, callers: &Rc<Callers>) {
    loop {
        let stream = listening.caller().await;
        callers.came(|id| spawn_local(serve(Rc::clone(callers), id, stream)).abort_handle());
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
    let mut lines = Lines::new(read, MAX_LINE);
    let first = lines.first().await?;
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

async fn control(
    callers: &Callers,
    shared: &Rc<Shared>,
    mut lines: Lines<OwnedReadHalf>,
    write: OwnedWriteHalf,
) -> io::Result<()> {
    let (tell, waiting) = queue(LINES, MAX_LINE);
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

async fn say(mut write: OwnedWriteHalf, waiting: Waiting) -> io::Result<()> {
    waiting.write(&mut write).await?;
    Err(io::Error::other("it does not read what it is told"))
}
