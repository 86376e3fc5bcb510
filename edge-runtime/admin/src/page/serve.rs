//! Connections of browsers: each has a few seconds and a few kilobytes, and their number is limited. Does not know the
//! content.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use edge_runtime::health::request::{self, Refusal};
use sampan_page::{FILES, File, HEADERS, HTML, SCRIPT};
use sampan_sys::tasks::Tasks;
use sampan_sys::time::within;
use smol::Timer;
use smol::channel::{Receiver, Sender, bounded};
use smol::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::access::{self, Door};

/// Maximum numbers of connections, and of those that follow changes.
const MOST: (usize, usize) = (32, 8);
/// Longest head: browsers send cookies of others at the same address.
const LONGEST: usize = 16 << 10;
/// Timeout for receiving a request, and for sending an answer or an event.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two signs of life.
const TICK: Duration = Duration::from_secs(10);

const OWN: [File; 2] = [("/", HTML, include_str!("index.html")), ("/device.js", SCRIPT, include_str!("device.js"))];
const JSON: &str = "application/json";

pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// The present content, and the connections that follow it.
pub(super) struct Live {
    parts: RefCell<Vec<Part>>,
    listeners: RefCell<Vec<Sender<()>>>,
    /// Is told how many listen, whenever another one does.
    looked_for: Box<dyn Fn(usize)>,
}

/// One part of the content.
struct Part {
    name: &'static str,
    /// JSON, in one line.
    text: String,
    /// Which news brought it.
    number: u64,
}

impl Live {
    pub(super) fn new(looked_for: impl Fn(usize) + 'static) -> Self {
        Self { parts: RefCell::default(), listeners: RefCell::default(), looked_for: Box::new(looked_for) }
    }

    /// The node is as these say: names and JSON.
    pub(super) fn tell(&self, news: Vec<(&'static str, String)>) {
        let mut parts = self.parts.borrow_mut();
        let number = parts.iter().map(|part| part.number).max().unwrap_or_default() + 1;
        for (name, text) in news {
            match parts.iter_mut().find(|part| part.name == name) {
                Some(part) if part.text == text => {}
                Some(part) => (part.text, part.number) = (text, number),
                None => parts.push(Part { name, text, number }),
            }
        }
        drop(parts);
        let mut listeners = self.listeners.borrow_mut();
        let before = listeners.len();
        // A slow client gets these changes with its next update.
        listeners.retain(|one| !one.is_closed());
        for one in listeners.iter() {
            let _ = one.try_send(());
        }
        if listeners.len() != before {
            (self.looked_for)(listeners.len());
        }
    }

    /// `None` if there are too many.
    fn listen(&self) -> Option<Receiver<()>> {
        let mut listeners = self.listeners.borrow_mut();
        listeners.retain(|one| !one.is_closed());
        if listeners.len() >= MOST.1 {
            return None;
        }
        let (sender, receiver) = bounded(1);
        listeners.push(sender);
        (self.looked_for)(listeners.len());
        Some(receiver)
    }

    /// Changes after `seen`, which becomes the newest.
    fn since(&self, seen: &mut u64) -> String {
        let parts = self.parts.borrow();
        let new = parts.iter().filter(|part| part.number > *seen);
        let text: String = new.map(|part| format!(",\"{}\":{}", part.name, part.text)).collect();
        *seen = parts.iter().map(|part| part.number).max().unwrap_or_default();
        format!("{{\"at\":{}{text}}}", millis())
    }
}

/// Accepts connections forever.
pub(super) async fn serve<F>(tasks: Tasks, door: Door, live: Rc<Live>, accept: impl Fn() -> F)
where
    F: Future<Output = io::Result<Box<dyn Stream>>>,
{
    let (door, places) = (Rc::new(door), Rc::new(()));
    loop {
        let Ok(stream) = accept().await else {
            // Out of descriptors: others must end first.
            Timer::after(Duration::from_millis(100)).await;
            continue;
        };
        // As many others as there are connections.
        if Rc::strong_count(&places) > MOST.0 {
            continue;
        }
        let (door, live, place) = (Rc::clone(&door), Rc::clone(&live), Rc::clone(&places));
        let work = async move {
            let _ = one(stream, &door, &live).await;
            drop(place);
        };
        tasks.spawn(work).detach();
    }
}

/// Serves one request. `None`: the client was too slow, or left.
async fn one(mut stream: Box<dyn Stream>, door: &Door, live: &Live) -> Option<()> {
    let bytes = within(PATIENCE, read(&mut stream)).await?.ok()?;
    // It is whole, or too long.
    let head = request::head(&bytes, LONGEST)?;
    match head.and_then(|head| access::path(door, head, |path| path.starts_with("/api/"))) {
        Ok("/api/node") => send(&mut stream, "200 OK", JSON, &live.since(&mut 0)).await,
        Ok("/api/stream") => match live.listen() {
            Some(news) => tell(&mut stream, live, news).await,
            None => refuse(&mut stream, "429 Too Many Requests").await,
        },
        Ok(path) => match OWN.iter().chain(&FILES).find(|(name, ..)| *name == path) {
            Some((_, kind, text)) => send(&mut stream, "200 OK", kind, text).await,
            None => refuse(&mut stream, "404 Not Found").await,
        },
        Err(refusal) => refuse(&mut stream, refusal).await,
    }
}

async fn read(stream: &mut Box<dyn Stream>) -> io::Result<Vec<u8>> {
    let (mut bytes, mut some) = (Vec::new(), [0; 1024]);
    loop {
        let length = stream.read(&mut some).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend(some.iter().take(length));
        if request::head(&bytes, LONGEST).is_some() {
            return Ok(bytes);
        }
    }
}

async fn refuse(stream: &mut Box<dyn Stream>, refusal: Refusal) -> Option<()> {
    send(stream, refusal, "text/plain; charset=utf-8", &format!("{refusal}\n")).await
}

async fn send(stream: &mut Box<dyn Stream>, status: &str, kind: &str, body: &str) -> Option<()> {
    let head = head(status, kind, &format!("Content-Length: {}\r\n", body.len()));
    let write = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.close().await
    };
    within(PATIENCE, write).await?.ok()
}

fn head(status: &str, kind: &str, more: &str) -> String {
    let guards: String = HEADERS.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n{guards}{more}\r\n")
}

/// Server-sent events, until the reader leaves or does not keep up.
async fn tell(stream: &mut Box<dyn Stream>, live: &Live, news: Receiver<()>) -> Option<()> {
    write(stream, &head("200 OK", "text/event-stream", "")).await?;
    let mut seen = 0;
    let mut text = event(&live.since(&mut seen));
    loop {
        write(stream, &text).await?;
        let mut some = [0; 16];
        let next = async {
            let _ = within(TICK, news.recv()).await;
            Some(())
        };
        // No more requests on this connection: it ends, or the client sends garbage.
        let left = async {
            let _ = stream.read(&mut some).await;
            None
        };
        smol::future::or(next, left).await?;
        // An unchanged content is sent as a sign of life.
        text = event(&live.since(&mut seen));
    }
}

fn event(text: &str) -> String {
    format!("event: node\ndata: {text}\n\n")
}

/// Since 1970.
pub(super) fn millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    u64::try_from(now).unwrap_or_default()
}

async fn write(stream: &mut Box<dyn Stream>, text: &str) -> Option<()> {
    within(PATIENCE, stream.write_all(text.as_bytes())).await?.ok()
}

#[cfg(test)]
mod tests;
