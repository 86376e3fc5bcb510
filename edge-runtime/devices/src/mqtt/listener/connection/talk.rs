//! A client from its CONNECT to its end.

use std::pin::pin;
use std::time::Duration;

use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc::Permit;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, sleep_until};

use super::FAREWELL;
use super::bytes::{Out, fill};
use super::end::End;
use crate::mqtt::listener::frame::Decoder;
use crate::mqtt::listener::hub::Token;
use crate::mqtt::listener::packet::Packet;
use crate::mqtt::listener::shared::Shared;
use crate::mqtt::news::News;

/// Timeout for reading, and for sending, a whole packet.
const PATIENCE: Duration = Duration::from_secs(30);
/// Without a reason to look at the clock.
const LONG: Duration = Duration::from_secs(3_600);
/// About how many bytes are written at once.
const WRITE: usize = 16 << 10;
/// Packets that are executed before others have their turn: each message is compared with the filters of all clients. A
/// subscription, which is compared with all retained messages, counts as all of them.
const AT_ONCE: usize = 8;
/// Bytes in one place that are worth to be given back.
const MUCH: usize = 32 << 10;

/// Condition for processing the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    /// The rest of it.
    Bytes,
    /// That the client reads.
    Room,
    /// A place in the node's queue.
    Place,
    /// That others have their turn.
    Turn,
}

/// Since when something is waited for.
struct Since {
    /// A packet of the client.
    packet: Instant,
    /// The rest of one.
    rest: Instant,
    /// When the client last read something.
    taken: Instant,
}

/// Says at its end that much memory was needed.
struct Spent<'a> {
    is_much: bool,
    shared: &'a Shared,
}

impl Drop for Spent<'_> {
    fn drop(&mut self) {
        if self.is_much {
            self.shared.spent();
        }
    }
}

pub(super) async fn talk(
    read: &mut ReadHalf<'_>,
    write: &mut WriteHalf<'_>,
    mut decoder: Decoder,
    shared: &Shared,
    token: Token,
    keep_alive: u16,
) -> End {
    // [MQTT-3.1.2-24]
    let silence = (keep_alive > 0).then(|| Duration::from_millis(u64::from(keep_alive) * 1_500));
    let wake = shared.wake(token);
    let mut out = Out::default();
    let mut place = None;
    // The client does not read any more. Its earlier packets are still processed: messages, and DISCONNECT.
    let mut lost = None;
    let mut much = Spent { is_much: false, shared };
    let now = Instant::now();
    let mut since = Since { packet: now, rest: now, taken: now };
    let mut timer = pin!(sleep_until(now + LONG));
    loop {
        let wants = match packets(&mut decoder, shared, token, &mut place, &mut since) {
            Ok(wants) => wants,
            Err(end) => return end,
        };
        if wants == Wants::Turn {
            tokio::task::yield_now().await;
            continue;
        }
        if out.is_empty() {
            shared.with(|hub| hub.write(token, &mut out.bytes, WRITE));
            match lost {
                None => since.taken = Instant::now(),
                Some(_) => out = Out::default(),
            }
        }
        let (cut, held) = shared.with(|hub| (hub.is_cut(token), hub.held_bytes()));
        if let Some(why) = cut {
            return End::Sent(why.to_owned());
        }
        much.is_much |= held.max(decoder.capacity()).max(out.bytes.capacity()) > MUCH;
        if wants != Wants::Bytes {
            // The client's packets cannot be read meanwhile.
            since.packet = since.taken.max(since.packet);
        }
        let mut deadline = timer.deadline().min(silence.map_or(timer.deadline(), |silence| since.packet + silence));
        if decoder.is_midway() && wants == Wants::Bytes {
            deadline = deadline.min(since.rest + PATIENCE);
        }
        if lost.is_some() {
            deadline = deadline.min(since.taken + FAREWELL);
        } else if !out.is_empty() {
            deadline = deadline.min(since.taken + PATIENCE);
        }
        if deadline < timer.deadline() {
            timer.as_mut().reset(deadline);
        }
        let midway = decoder.is_midway();
        tokio::select! {
            more = fill(read, &mut decoder), if wants == Wants::Bytes => match more {
                Ok(more) => {
                    if !midway {
                        since.rest = Instant::now();
                    }
                    if more {
                        // Others have their turn.
                        tokio::task::yield_now().await;
                    }
                }
                Err(error) => return lost.unwrap_or(error).into(),
            },
            flushed = out.flush(write), if !out.is_empty() => match flushed {
                Ok(()) => since.taken = Instant::now(),
                Err(error) => {
                    lost = Some(error);
                    out = Out::default();
                    since.taken = Instant::now();
                }
            },
            permit = shared.news.reserve(), if wants == Wants::Place => match permit {
                Ok(permit) => {
                    place = Some(permit);
                    (since.packet, since.rest) = (Instant::now(), Instant::now());
                }
                Err(_) => return End::Sent("the node ends".to_owned()),
            },
            () = wake.notified() => {}
            () = &mut timer => {
                let now = Instant::now();
                if let Some(lost) = lost.take_if(|_| now >= since.taken + FAREWELL) {
                    return lost.into();
                }
                if silence.is_some_and(|silence| wants == Wants::Bytes && now >= since.packet + silence) {
                    return End::Sent("it is silent for longer than its keep-alive allows".to_owned());
                }
                if decoder.is_midway() && wants == Wants::Bytes && now >= since.rest + PATIENCE {
                    return End::Sent("the rest of a packet does not come".to_owned());
                }
                if !out.is_empty() && now >= since.taken + PATIENCE {
                    return End::Sent("it does not read what it is told".to_owned());
                }
                timer.as_mut().reset(now + LONG);
            }
        }
    }
}

/// Executes the packets that have arrived completely.
fn packets<'a>(
    decoder: &mut Decoder,
    shared: &'a Shared,
    token: Token,
    place: &mut Option<Permit<'a, News>>,
    since: &mut Since,
) -> Result<Wants, End> {
    let mut executed = 0;
    let wants = loop {
        if executed >= AT_ONCE {
            break Wants::Turn;
        }
        let Some((packet, size)) = decoder.peek()? else { break Wants::Bytes };
        let (full, for_node) = shared.with(|hub| (hub.is_full(token), hub.is_for_node(&packet)));
        if full {
            break Wants::Room;
        }
        if for_node && place.is_none() {
            match shared.news.try_reserve() {
                Ok(permit) => *place = Some(permit),
                Err(TrySendError::Full(())) => break Wants::Place,
                Err(TrySendError::Closed(())) => return Err(End::Sent("the node ends".to_owned())),
            }
        }
        if packet == Packet::Disconnect {
            return Err(End::Orderly);
        }
        executed += if matches!(packet, Packet::Subscribe(..)) { AT_ONCE } else { 1 };
        let news = shared.with(|hub| hub.packet(token, packet))?;
        if let Some(news) = news
            && let Some(place) = place.take()
        {
            place.send(news);
        }
        decoder.take(size);
        since.packet = Instant::now();
        since.rest = since.packet;
    };
    // Releases an unneeded place.
    *place = None;
    Ok(wants)
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::mqtt::listener::hub::Hub;
    use crate::mqtt::listener::login::Logins;

    #[test]
    fn others_have_their_turn_after_a_subscription_or_some_packets() {
        let (news, _node) = mpsc::channel(1);
        let shared = Shared::new(Hub::new(&[], &[]), Logins::new(None), news);
        let mut decoder = Decoder::default();
        decoder.feed(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a");
        let (packet, size) = decoder.peek().expect("it is valid").expect("it is there");
        let Packet::Connect(connect) = packet else { panic!("no CONNECT") };
        let who = shared.logins.who(None, None, None).expect("there are no users");
        let token = shared.with(|hub| hub.connect(&connect, who)).expect("there is room");
        decoder.take(size);
        decoder.feed(b"\x82\x06\x00\x01\x00\x01a\x00\x82\x06\x00\x02\x00\x01a\x00\xc0\x00");
        let now = Instant::now();
        let mut since = Since { packet: now, rest: now, taken: now };
        let mut next = || packets(&mut decoder, &shared, token, &mut None, &mut since).ok();
        assert_eq!([next(), next(), next()], [Some(Wants::Turn), Some(Wants::Turn), Some(Wants::Bytes)]);
        decoder.feed(&b"\xc0\x00".repeat(AT_ONCE + 1));
        let mut next = || packets(&mut decoder, &shared, token, &mut None, &mut since).ok();
        assert_eq!([next(), next()], [Some(Wants::Turn), Some(Wants::Bytes)]);
    }
}
