//! Exec and attach: records of a node on one side, a client's channels on the other.
//!
//! Both directions run until the node has said how it ended, or the client has gone.

use std::io;
use std::time::Duration;

use apimachinery::flow::Flow;
use async_tungstenite::tungstenite::Message;
use bytes::Bytes;
use edge_protocol::channel::{CLOSE, RESIZE, Record, STATUS, STDERR, STDIN, STDOUT};
use futures::StreamExt;
use hyper::upgrade::Upgraded;
use tokio::sync::mpsc;

use super::negotiate::{Agreed, Transport};
use super::resize::Sizes;
use super::spdy::connection::{self, Event, Gone, Incoming, Outgoing};
use super::spdy::{frame, headers};
use super::status;
use super::wire::{self, Codec, SocketIn, SocketOut};
use crate::backend::{Channels, RecordSender, RecordStream, SessionOptions};

/// Timeout for a client to open all its streams.
const STREAMS: Duration = Duration::from_secs(30);
/// Interval of pongs to a WebSocket's client. Its own pings may wait behind unread input.
const PONG: Duration = Duration::from_secs(10);
/// Timeout for a client to close after this side.
const LINGER: Duration = Duration::from_secs(5);
/// Bytes that may come before all streams are open. Clients wait until these are accepted.
const EARLY: usize = 16 << 10;
/// Messages that wait for the socket.
const QUEUE: usize = 4;

/// Serves a session until it ends.
pub(super) async fn serve(
    upgraded: Upgraded,
    agreed: &Agreed,
    channels: Channels,
    options: &SessionOptions,
    flow: &Flow,
) {
    let served = match agreed.transport {
        Transport::Socket => over_socket(upgraded, (agreed.version, agreed.codec), channels, options, flow).await,
        Transport::Spdy | Transport::Tunnel => over_spdy(upgraded, agreed.version, channels, options, flow).await,
    };
    if let Err(error) = served {
        log::debug!("a session of {}: {error}", options.container);
    }
}

/// What a client sends.
enum Input {
    Data(u8, Bytes),
    /// Nothing follows on this channel.
    End(u8),
}

async fn over_socket(
    upgraded: Upgraded,
    (version, codec): (u8, Codec),
    channels: Channels,
    options: &SessionOptions,
    flow: &Flow,
) -> io::Result<()> {
    let (sender, mut receiver) = wire::websocket(upgraded, wire::MAX_MESSAGE, flow).await;
    let (out, queue) = mpsc::channel(QUEUE);
    let writer = tokio::spawn(write(sender, queue));
    let client = Client::Socket { out, codec };
    // Says that the connection stands, on the first channel that is wanted (K8s cri-streaming remotecommand).
    let first = if options.stdout {
        STDOUT
    } else if options.stderr {
        STDERR
    } else {
        STATUS
    };
    client.data(first, &[]).await.map_err(io::Error::other)?;
    let Channels { records, sender } = channels;
    {
        let up = async {
            let mut sizes = Sizes::default();
            while let Some(input) = message(&mut receiver, version, codec).await? {
                give(input, sender.as_ref(), options, &mut sizes).await;
            }
            Ok(())
        };
        relay(up, down(records, &client, version, options), &client).await?;
    }
    drop(client);
    let last = async {
        // How it ended does not matter any more.
        let _ = writer.await;
        while let Ok(Some(_)) = wire::next_message(&mut receiver).await {}
    };
    let _ = tokio::time::timeout(LINGER, last).await;
    Ok(())
}

/// The next message that has a meaning.
async fn message(socket: &mut SocketIn, version: u8, codec: Codec) -> io::Result<Option<Input>> {
    while let Some(bytes) = wire::next_message(socket).await? {
        match codec.read(&bytes) {
            Some((CLOSE, data)) if version >= 5 => {
                if let Some(&channel) = data.first() {
                    return Ok(Some(Input::End(channel)));
                }
            }
            Some((channel, data)) => return Ok(Some(Input::Data(channel, data))),
            None => {}
        }
    }
    Ok(None)
}

async fn write(mut socket: SocketOut, mut queue: mpsc::Receiver<Message>) {
    loop {
        let next = match tokio::time::timeout(PONG, queue.recv()).await {
            Ok(Some(message)) => message,
            Ok(None) => break,
            Err(_) => Message::Pong(Bytes::new()),
        };
        if let Err(error) = socket.send(next).await {
            log::debug!("a streaming client: {error}");
            return;
        }
    }
    // Whether the client still listens is its affair.
    let _ = wire::close(&mut socket).await;
}

async fn over_spdy(
    upgraded: Upgraded,
    version: u8,
    channels: Channels,
    options: &SessionOptions,
    flow: &Flow,
) -> io::Result<()> {
    let (wire_in, wire_out) = wire::wire(upgraded, false, flow).await;
    let (mut incoming, out, writer) = connection::start(wire_in, wire_out);
    let wait = expect(&mut incoming, &out, version, options);
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "timed out waiting for client to create streams");
    let (streams, early) = tokio::time::timeout(STREAMS, wait).await.map_err(late)??;
    let client = Client::Spdy { out: out.clone(), streams };
    let Channels { records, sender } = channels;
    {
        let up = async {
            let mut sizes = Sizes::default();
            for event in early {
                if let Some(input) = streams.input(event) {
                    give(input, sender.as_ref(), options, &mut sizes).await;
                }
            }
            while let Some(event) = incoming.next().await? {
                if let Event::Open { stream, .. } = event {
                    out.reset(stream, frame::REFUSED_STREAM).await.map_err(io::Error::other)?;
                } else if let Some(input) = streams.input(event) {
                    give(input, sender.as_ref(), options, &mut sizes).await;
                }
            }
            Ok(())
        };
        relay(up, down(records, &client, version, options), &client).await?;
    }
    out.go_away(incoming.newest()).await.map_err(io::Error::other)?;
    drop((client, out));
    incoming.finish(writer).await;
    Ok(())
}

/// The client's streams, by channel.
#[derive(Clone, Copy, Debug, Default)]
struct Streams {
    ids: [Option<u32>; 5],
}

impl Streams {
    fn input(&self, event: Event) -> Option<Input> {
        let channel = |stream| self.ids.iter().position(|id| *id == Some(stream)).and_then(|at| u8::try_from(at).ok());
        match event {
            Event::Data { stream, data } => Some(Input::Data(channel(stream)?, data)),
            Event::Fin { stream } | Event::Reset { stream } => Some(Input::End(channel(stream)?)),
            Event::Open { .. } => None,
        }
    }

    fn of(&self, channel: u8) -> Option<u32> {
        self.ids.get(usize::from(channel)).copied().flatten()
    }
}

/// Accepts the streams that the options call for, and keeps what comes on them meanwhile.
async fn expect(
    incoming: &mut Incoming,
    out: &Outgoing,
    version: u8,
    options: &SessionOptions,
) -> io::Result<(Streams, Vec<Event>)> {
    let mut missing = vec![STATUS];
    missing.extend(
        [(STDIN, options.stdin), (STDOUT, options.stdout), (STDERR, options.stderr)]
            .iter()
            .filter_map(|(channel, wanted)| wanted.then_some(*channel)),
    );
    missing.extend((options.tty && version >= 3).then_some(RESIZE));
    let (mut streams, mut early, mut room) = (Streams::default(), Vec::new(), EARLY);
    while !missing.is_empty() {
        let event = incoming.next().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let Event::Open { stream, headers } = event else {
            // Data of a stream that still waits for its reply is a client's haste, but a bounded one.
            if early.len() < 64 {
                early.extend(kept(event, &mut room));
            }
            continue;
        };
        let channel = match headers::get(&headers, "streamType") {
            Some("error") => STATUS,
            Some("stdin") => STDIN,
            Some("stdout") => STDOUT,
            Some("stderr") => STDERR,
            Some("resize") => RESIZE,
            _ => CLOSE,
        };
        if !missing.contains(&channel) {
            out.reset(stream, frame::REFUSED_STREAM).await.map_err(io::Error::other)?;
            continue;
        }
        missing.retain(|wanted| *wanted != channel);
        streams.ids[usize::from(channel)] = Some(stream);
        out.accept(stream).await.map_err(io::Error::other)?;
    }
    Ok((streams, early))
}

/// An event that waits. `room` is for its bytes, of which a copy is kept: a part of a buffer would keep all of it.
fn kept(event: Event, room: &mut usize) -> Option<Event> {
    let Event::Data { stream, data } = event else { return Some(event) };
    *room = room.checked_sub(data.len())?;
    Some(Event::Data { stream, data: Bytes::copy_from_slice(&data) })
}

/// Passes on what the client sent. That the node's end is closed is told by its records, not here.
async fn give(input: Input, sender: &dyn RecordSender, options: &SessionOptions, sizes: &mut Sizes) {
    let given = match input {
        Input::Data(STDIN, data) if options.stdin => sender.send(STDIN, &data).await,
        Input::End(STDIN) if options.stdin => sender.send(CLOSE, &[STDIN]).await,
        Input::Data(RESIZE, data) if options.tty => match sizes.newest(&data) {
            Some(size) => sender.send(RESIZE, &size).await,
            None => Ok(()),
        },
        _ => Ok(()),
    };
    if let Err(over) = given {
        log::trace!("input of a session: {over}");
    }
}

/// Runs both directions until the node has ended or the client has gone.
async fn relay(
    up: impl Future<Output = io::Result<()>>,
    down: impl Future<Output = Result<(), Gone>>,
    client: &Client,
) -> io::Result<()> {
    tokio::select! {
        gone = up => gone,
        ended = down => ended.map_err(io::Error::other),
        () = client.closed() => Err(io::Error::other(Gone)),
    }
}

async fn down(mut records: RecordStream, client: &Client, version: u8, options: &SessionOptions) -> Result<(), Gone> {
    let status = loop {
        match records.next().await {
            Some(Ok(Record { channel: STATUS, data })) => break data,
            Some(Ok(Record { channel: CLOSE, data })) => {
                if let [channel @ (STDOUT | STDERR)] = data[..] {
                    client.end(channel).await?;
                }
            }
            Some(Ok(Record { channel, data })) => {
                if (channel == STDOUT && options.stdout) || (channel == STDERR && options.stderr) {
                    client.data(channel, &data).await?;
                }
            }
            Some(Err(error)) => break status::broken(&error.to_string()),
            None => break status::broken("the node ended the stream without a status"),
        }
    };
    let text = status::text(version, &status);
    if !text.is_empty() {
        client.data(STATUS, &text).await?;
    }
    for channel in [STATUS, STDOUT, STDERR] {
        client.end(channel).await?;
    }
    Ok(())
}

/// The way to a client.
enum Client {
    Socket { out: mpsc::Sender<Message>, codec: Codec },
    Spdy { out: Outgoing, streams: Streams },
}

impl Client {
    async fn data(&self, channel: u8, data: &[u8]) -> Result<(), Gone> {
        match self {
            Self::Socket { out, codec } => out.send(codec.message(channel, data)).await.map_err(|_| Gone),
            Self::Spdy { out, streams } => match streams.of(channel) {
                Some(stream) => out.data(stream, data).await,
                None => Ok(()),
            },
        }
    }

    /// Nothing follows on this channel. On a WebSocket only a client says so: it would not understand it itself.
    async fn end(&self, channel: u8) -> Result<(), Gone> {
        match self {
            Self::Spdy { out, streams } => match streams.of(channel) {
                Some(stream) => out.fin(stream).await,
                None => Ok(()),
            },
            Self::Socket { .. } => Ok(()),
        }
    }

    async fn closed(&self) {
        match self {
            Self::Socket { out, .. } => out.closed().await,
            Self::Spdy { out, .. } => out.closed().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn haste_of_a_client_takes_a_bounded_room() {
        let mut room = EARLY;
        let data = || Event::Data { stream: 1, data: Bytes::from(vec![0; 1000]) };
        let events: Vec<Event> = (0..64).filter_map(|_| kept(data(), &mut room)).collect();
        assert_eq!(events.len(), EARLY / 1000);
        assert!(kept(Event::Fin { stream: 1 }, &mut room).is_some());
    }
}
