//! Sockets and connections of the health server. An open port lets in any client, so each connection has a few seconds
//! and a few kilobytes, and there are few at once: they cannot keep the loop from its work.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use smol::channel::bounded;
use smol::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use smol::{Async, Timer};

use super::request::{self, What};
use super::{Answer, Ask, Asked};
use crate::counters;
use crate::sys::socket;
use crate::sys::tasks::Tasks;
use crate::sys::time::within;

/// Connections at once, of the socket and of the port each.
const MOST: usize = 8;
/// Timeout for receiving a request, its answer by the loop, and sending the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Before an address that cannot be had is asked for again.
const AGAIN: Duration = Duration::from_secs(10);

trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// Serves at a socket that only root can open. Replaces the socket of an earlier daemon.
pub async fn on_socket(tasks: Tasks, path: PathBuf, ask: Ask) {
    let listener = match socket::listen(&path, 0o600).and_then(Async::new) {
        Ok(listener) => listener,
        Err(error) => return log::error!("nobody can ask for health or metrics: {}: {error}", path.display()),
    };
    let door = Door::new(tasks, ask);
    loop {
        door.enter(listener.accept().await.map(|(stream, _)| Box::new(stream) as _)).await;
    }
}

/// Serves at an address, as soon as it is there.
pub async fn on_port(tasks: Tasks, address: SocketAddr, ask: Ask) {
    let mut told = false;
    let listener = loop {
        match TcpListener::bind(address).and_then(Async::new) {
            Ok(listener) => break listener,
            Err(error) if !told => log::error!("metrics.listen: {address}: {error}; tried again"),
            Err(_) => {}
        }
        told = true;
        Timer::after(AGAIN).await;
    };
    let door = Door::new(tasks, ask);
    loop {
        door.enter(listener.accept().await.map(|(stream, _)| Box::new(stream) as _)).await;
    }
}

/// Where connections come in.
struct Door {
    tasks: Tasks,
    ask: Ask,
    /// Its reference count is the number of connections plus one.
    places: Rc<()>,
}

impl Door {
    fn new(tasks: Tasks, ask: Ask) -> Self {
        Self { tasks, ask, places: Rc::default() }
    }

    async fn enter(&self, stream: io::Result<Box<dyn Stream>>) {
        let Ok(stream) = stream else {
            // Out of descriptors: others must end first.
            Timer::after(Duration::from_millis(100)).await;
            return;
        };
        if Rc::strong_count(&self.places) > MOST {
            return;
        }
        let (ask, place) = (Rc::clone(&self.ask), Rc::clone(&self.places));
        let work = async move {
            let _ = serve(stream, &ask).await;
            drop(place);
        };
        self.tasks.spawn(work).detach();
    }
}

/// Serves one request. `None`: the client was too slow, or left.
async fn serve(mut stream: Box<dyn Stream>, ask: &Ask) -> Option<()> {
    let request = within(PATIENCE, read(&mut stream)).await?.ok()?;
    let (status, kind, body) = match request {
        Ok(what) => answer(what, ask).await,
        Err(refusal) => (refusal, PLAIN, format!("{refusal}\n")),
    };
    let length = body.len();
    let head = [
        "HTTP/1.1 ",
        status,
        "\r\nContent-Type: ",
        kind,
        "\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\nContent-Length: ",
        &length.to_string(),
        "\r\n\r\n",
    ]
    .concat();
    let write = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.close().await
    };
    within(PATIENCE, write).await?.ok()
}

const PLAIN: &str = "text/plain; charset=utf-8";

async fn read(stream: &mut Box<dyn Stream>) -> io::Result<Result<What, request::Refusal>> {
    let (mut bytes, mut some) = (Vec::new(), [0; 512]);
    loop {
        let length = stream.read(&mut some).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend(some.iter().take(length));
        if let Some(done) = request::read(&bytes) {
            return Ok(done);
        }
    }
}

async fn answer(what: What, ask: &Ask) -> (&'static str, &'static str, String) {
    let (sender, receiver) = bounded(1);
    let asked = ask(Asked { what, answer: sender });
    let heard = if asked { within(PATIENCE, receiver.recv()).await.and_then(Result::ok) } else { None };
    let Answer { ok, mut body, more } = heard.unwrap_or_else(|| Answer::new(false, stuck()));
    if let Some(more) = more {
        body.push_str(&more.await);
    }
    let kind = if what == What::Metrics && ok { "text/plain; version=0.0.4; charset=utf-8" } else { PLAIN };
    (if ok { "200 OK" } else { "503 Service Unavailable" }, kind, body)
}

fn stuck() -> String {
    let now = crate::clock::Clock::mono().as_duration().as_millis();
    let since = now.saturating_sub(counters::LAST_TURN.get().into()) / 1000;
    format!("[-]loop failed: it has not answered; its last turn ended {since} s ago\n")
}

#[cfg(test)]
mod tests;
