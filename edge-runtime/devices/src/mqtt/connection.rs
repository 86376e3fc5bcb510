//! One connection to a broker, from CONNECT to its end. Reading and writing wait for each other nowhere, so a broker that stops
//! reading delays no message that it sends.

mod window;

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use self::window::{WINDOW, Window};
use super::filters::Filters;
use super::news::News;
use super::packet::{self, Broken, Decoder, Login, Packet, Publish};
use super::queue::{Entry, Waiting};
use crate::twins::FILTERS;

/// Timeout for the broker to accept the connection and the subscriptions.
const GREETING: Duration = Duration::from_secs(10);
/// Interval of pings, and the keep-alive for the broker in seconds.
const PING: Duration = Duration::from_secs(20);
const KEEP_ALIVE: u16 = 30;
/// Without any sign of life of the broker.
const SILENCE: Duration = Duration::from_secs(50);
/// Timeout for one packet.
const PATIENCE: Duration = Duration::from_secs(30);
const CHUNK: usize = 4_096;
/// Pause between two reads. Packets that arrive meanwhile are read at once, and answered by one write: a system call
/// for each packet would be most of the work.
const PAUSE: Duration = Duration::from_millis(5);
/// Fewer unacknowledged messages than this are not acknowledged at once: brokers send only some before the first
/// acknowledgement (mosquitto 20), and drop what waits too long behind them.
const OWED: u32 = 8;
/// Bytes of packets after which they are written.
const TOGETHER: usize = 8_192;
const SUBSCRIPTION: u16 = 1;
const MORE: u16 = 2;
const LESS: u16 = 3;

fn broken(Broken(why): Broken) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The reading side of a connection.
struct Ear<R> {
    stream: R,
    decoder: Decoder,
    /// Not before there is anything to read again.
    next: Instant,
    /// Messages since the last read that the broker wants acknowledged.
    owed: u32,
}

impl<R: AsyncRead + Unpin> Ear<R> {
    async fn hear(&mut self) -> io::Result<Packet> {
        let mut chunk = [0; CHUNK];
        loop {
            if let Some(packet) = self.decoder.next().map_err(broken)? {
                self.owed += u32::from(matches!(packet, Packet::Publish(Publish { id: Some(_), .. })));
                return Ok(packet);
            }
            if std::mem::take(&mut self.owed) < OWED && self.next > Instant::now() {
                sleep_until(self.next).await;
            }
            let read = timeout(SILENCE, self.stream.read(&mut chunk)).await??;
            match read {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                // There is more.
                CHUNK => {}
                _ => self.next = Instant::now() + PAUSE,
            }
            self.decoder.feed(&chunk[..read]);
        }
    }
}

async fn say(stream: &mut (impl AsyncWrite + Unpin), packet: &[u8]) -> io::Result<()> {
    timeout(PATIENCE, stream.write_all(packet)).await?
}

/// Serves until the connection ends: with `Ok` when the publishers are gone.
pub(super) async fn serve<S: AsyncRead + AsyncWrite>(
    stream: S,
    login: &Login,
    news: &mpsc::Sender<News>,
    waiting: &mut Waiting,
    filters: &Filters,
) -> io::Result<()> {
    let (read, mut write) = tokio::io::split(stream);
    let mut ear = Ear { stream: read, decoder: Decoder::default(), next: Instant::now(), owed: 0 };
    let greeted = async {
        say(&mut write, &packet::connect(login, KEEP_ALIVE)).await?;
        match ear.hear().await? {
            Packet::ConnAck(0) => say(&mut write, &packet::subscribe(SUBSCRIPTION, &FILTERS)).await,
            Packet::ConnAck(code) => Err(io::Error::other(format!("the broker refuses: {}", refusal(code)))),
            _ => Err(io::Error::other("the broker speaks before it has taken us")),
        }
    };
    timeout(GREETING, greeted).await??;

    let (acks, to_ack) = mpsc::channel(WINDOW);
    let window = Window::new();
    let reading = reading(&mut ear, news, &acks, &window);
    let writing = writing(&mut write, to_ack, waiting, &window, filters);
    tokio::select! {
        ended = reading => ended,
        ended = writing => ended,
    }
}

async fn reading(
    ear: &mut Ear<impl AsyncRead + Unpin>,
    news: &mpsc::Sender<News>,
    acks: &mpsc::Sender<u16>,
    window: &Window,
) -> io::Result<()> {
    let gone = |_| io::Error::from(io::ErrorKind::Interrupted);
    let taken = Instant::now() + GREETING;
    let mut up = false;
    loop {
        let packet = tokio::select! {
            packet = ear.hear() => packet?,
            () = sleep_until(taken), if !up => return Err(io::Error::other("the broker does not answer the subscription")),
        };
        match packet {
            Packet::Publish(Publish { topic, payload, retained, id }) => {
                // Waits for the receiver of the news, and thus makes the broker wait.
                news.send(News::Message { topic, payload, retained }).await.map_err(|_| gone(()))?;
                if let Some(id) = id {
                    acks.send(id).await.map_err(|_| gone(()))?;
                }
            }
            Packet::PubAck(id) => window.acked(id),
            Packet::SubAck(SUBSCRIPTION, codes) if !up => {
                for (filter, _) in FILTERS.iter().zip(&codes).filter(|(_, code)| **code > 2) {
                    log::warn!("the broker does not let this node subscribe to {filter}");
                }
                up = true;
                news.send(News::Up).await.map_err(|_| gone(()))?;
            }
            Packet::SubAck(_, codes) => {
                if codes.iter().any(|code| *code > 2) {
                    log::warn!("the broker does not let this node subscribe to what rules want");
                }
            }
            Packet::UnsubAck | Packet::PingResp => {}
            Packet::ConnAck(_) => return Err(io::Error::other("the broker takes us twice")),
        }
    }
}

async fn writing(
    stream: &mut (impl AsyncWrite + Unpin),
    mut acks: mpsc::Receiver<u16>,
    waiting: &mut Waiting,
    window: &Window,
    filters: &Filters,
) -> io::Result<()> {
    let (mut last, mut packets) = (LESS, Vec::new());
    let (mut subscribed, mut version) = (BTreeSet::new(), u64::MAX);
    let mut add = |packets: &mut Vec<u8>, Entry { message, confirm }: Entry| {
        let id = window.take(&mut last, confirm);
        packet::message(packets, &message.topic, &message.payload, Some(id), false);
    };
    // What waited was for listeners of another connection.
    waiting.clear();
    let mut ping = Instant::now() + PING;
    loop {
        let next = async {
            window.room().await;
            waiting.next().await
        };
        tokio::select! {
            Some(id) = acks.recv() => packets.extend_from_slice(&packet::puback(id)),
            () = filters.changed(version) => {
                let (now, difference) = filters.take(&mut subscribed);
                version = now;
                if !difference.less.is_empty() {
                    packets.extend(packet::unsubscribe(LESS, &difference.less));
                }
                if !difference.more.is_empty() {
                    packets.extend(packet::subscribe(MORE, &difference.more));
                }
            }
            entry = next => match entry {
                Some(entry) => add(&mut packets, entry),
                None => return say(stream, &packet::DISCONNECT).await,
            },
            () = sleep_until(ping) => {
                if window.is_stuck() {
                    return Err(io::Error::other("the broker acknowledges nothing"));
                }
                packets.extend_from_slice(&packet::PINGREQ);
                ping = Instant::now() + PING;
            }
        }
        while packets.len() < TOGETHER
            && let Ok(id) = acks.try_recv()
        {
            packets.extend_from_slice(&packet::puback(id));
        }
        while packets.len() < TOGETHER
            && window.has_room()
            && let Some(message) = waiting.now()
        {
            add(&mut packets, message);
        }
        say(stream, &packets).await?;
        packets.clear();
        packets.shrink_to(TOGETHER);
    }
}

const fn refusal(code: u8) -> &'static str {
    match code {
        1 => "it does not speak MQTT 3.1.1",
        2 => "it does not like the client id",
        3 => "it is not available",
        4 => "username or password is wrong",
        5 => "this client is not allowed",
        _ => "it does not say why",
    }
}
