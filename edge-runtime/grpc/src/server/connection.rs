//! One connection: its socket, its timeouts, and its calls on their way to the code that answers them. It does not read
//! while the client does not read its answers, or while its request must wait for memory. So nothing accumulates here.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sampan_nghttp2::Error;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::yield_now;
use tokio::time::sleep_until;

use super::exchange::{Exchange, Request};
use super::flights::{Answer, Flights};
use super::room::Room;
use super::{Call, Peer, Shared};
use crate::message::framed;
use crate::{Code, Status};

/// Time for a client to start HTTP/2 and acknowledge our settings.
const GREETING: Duration = Duration::from_secs(5);
/// Idle timeout when others wait for a place.
const IDLE_IN_A_CROWD: Duration = Duration::from_secs(1);
/// Timeout for a client that reads nothing of what it is sent.
const PATIENCE: Duration = Duration::from_secs(5);
const CHUNK: usize = 4 << 10;
/// Maximum number of bytes read before other connections run.
const TURN: usize = 16 * CHUNK;

pub(super) async fn serve(stream: UnixStream, shared: &Shared) {
    let mut flights = Flights::new(shared.limits.flight, shared.limits.cancels);
    if let Err(why) = talk(stream, shared, &mut flights).await {
        log::debug!("a gRPC connection ends: {why}");
    }
    flights.land().await;
}

fn late(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

fn broken(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

async fn talk(stream: UnixStream, shared: &Shared, flights: &mut Flights) -> io::Result<()> {
    let credentials = stream.peer_cred()?;
    let peer = Peer { pid: credentials.pid(), uid: credentials.uid() };
    let mut exchange = Exchange::new(Instant::now()).map_err(broken)?;
    exchange.set_request(shared.limits.request);
    let mut output = Output::default();
    let start = Instant::now();
    let (mut idle, mut ending) = (Some(start), false);
    // The client speaks first (RFC 9113 section 3.4): it is answered together with our settings.
    let (mut heard, mut turn) = (false, 0);
    loop {
        let now = Instant::now();
        flights.tick(now);
        exchange.settle(now).map_err(broken)?;
        flights.keep_asked(|id| exchange.is_asked(id));
        let mut called = false;
        while exchange.has_request()
            && let Some(place) = shared.free_place()
        {
            hand_over(&mut exchange, peer, flights, place);
            called = true;
        }
        if called {
            // Most answers come at once: then one write sends everything.
            yield_now().await;
            while let Some((id, answer)) = flights.landed() {
                take(&mut exchange, shared, id, answer)?;
            }
        }
        while heard && output.flush(now, &stream)? {
            exchange.output(&mut output.bytes).map_err(broken)?;
            if output.bytes.is_empty() {
                break;
            }
        }
        if output.is_stuck(now) {
            return Err(late("it does not read what it is sent"));
        }
        if output.is_empty() && exchange.is_over() {
            return Ok(());
        }
        let greeting = (!exchange.is_greeted()).then_some(start + GREETING);
        if greeting.is_some_and(|until| until <= now) {
            return Err(late("it does not greet"));
        }
        idle = (!exchange.is_busy()).then(|| idle.unwrap_or(now));
        if idle.is_some_and(|since| since + shared.limits.idle <= now) && !ending {
            ending = true;
            exchange.end().map_err(broken)?;
            continue;
        }
        let idle_until = idle.filter(|_| !ending).map(|since| since + shared.limits.idle);
        let clocks = [exchange.wake(), flights.wake(), greeting, idle_until, output.stuck_at()];
        let wake = clocks.into_iter().flatten().min();
        let wake = wake.unwrap_or(now + shared.limits.idle);
        let wants = exchange.wants();
        let reads = output.is_empty() && wants.is_none();
        tokio::select! {
            ready = stream.readable(), if reads => {
                ready?;
                let Some(count) = read(&stream, &mut exchange)? else { return Ok(()) };
                (heard, turn) = (true, turn + count);
                // Others have their turn, however much it sends.
                if turn >= TURN {
                    turn = 0;
                    yield_now().await;
                }
            }
            ready = stream.writable(), if !output.is_empty() => ready?,
            room = shared.rooms.request(wants.map_or(0, |(_, bytes)| bytes)), if wants.is_some() => {
                if let (Some((id, _)), Some(room)) = (wants, room) {
                    exchange.grant(Instant::now(), id, room).map_err(broken)?;
                }
            }
            place = shared.place(), if exchange.has_request() => {
                if let Some(place) = place {
                    hand_over(&mut exchange, peer, flights, place);
                } else if let Some(request) = exchange.request() {
                    let gone = Err(Status::new(Code::Unavailable, "this server ends"));
                    exchange.answer(Instant::now(), request.stream, gone).map_err(broken)?;
                }
            }
            (id, answer) = flights.next() => take(&mut exchange, shared, id, answer)?,
            () = sleep_until(wake.into()) => {}
            () = shared.crowded.notified(), if idle.is_some() && !ending => {
                if idle.is_some_and(|since| since.elapsed() >= IDLE_IN_A_CROWD) {
                    ending = true;
                    exchange.end().map_err(broken)?;
                }
            }
        }
    }
}

/// Takes an answer.
fn take(exchange: &mut Exchange, shared: &Shared, id: i32, answer: Answer) -> io::Result<()> {
    if !exchange.is_asked(id) {
        return Ok(());
    }
    exchange.answer(Instant::now(), id, shared.answer(answer)).map_err(broken)
}

/// A place among the calls in progress, and one in the queue of the code that answers.
type Place<'a> = (OwnedSemaphorePermit, mpsc::Permit<'a, Call>);

impl Shared {
    /// `None` if the answering code has stopped.
    async fn place(&self) -> Option<Place<'_>> {
        let place = Arc::clone(&self.flights).acquire_owned().await.ok()?;
        Some((place, self.calls.reserve().await.ok()?))
    }

    /// Returns a free place.
    fn free_place(&self) -> Option<Place<'_>> {
        let place = Arc::clone(&self.flights).try_acquire_owned().ok()?;
        Some((place, self.calls.try_reserve().ok()?))
    }

    fn answer(&self, answer: Answer) -> Result<(Vec<u8>, Room), Status> {
        let message = answer?;
        let length = message.len();
        let framed = framed(message)?;
        let full = || Status::new(Code::ResourceExhausted, "too many long answers wait to be read");
        Ok((framed, self.rooms.answer(length).ok_or_else(full)?))
    }
}

/// The next request that is complete.
fn hand_over(exchange: &mut Exchange, peer: Peer, flights: &mut Flights, (place, permit): Place<'_>) {
    if let Some(Request { stream, path, message, room }) = exchange.request() {
        let reply = flights.add(Instant::now(), stream, place, room);
        permit.send(Call { path, message, peer, reply });
    }
}

/// Returns the number of bytes read; `None` at the end of the client's input.
fn read(stream: &UnixStream, exchange: &mut Exchange) -> io::Result<Option<usize>> {
    let mut chunk = [0; CHUNK];
    match stream.try_read(&mut chunk) {
        Ok(0) => Ok(None),
        Ok(count) => {
            if count < CHUNK {
                // Everything is read; epoll announces later data (epoll(7), question 9), so no polling is needed.
                let _: io::Result<()> = stream.try_io(Interest::READABLE, || Err(io::ErrorKind::WouldBlock.into()));
            }
            let bytes = chunk.get(..count).unwrap_or(&chunk);
            exchange.receive(Instant::now(), bytes).map_err(broken)?;
            Ok(Some(count))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Some(0)),
        Err(error) => Err(error),
    }
}

/// What the socket has not taken yet.
#[derive(Debug, Default)]
struct Output {
    bytes: Vec<u8>,
    sent: usize,
    /// When the socket last took some of it.
    moved: Option<Instant>,
}

impl Output {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn stuck_at(&self) -> Option<Instant> {
        self.moved.map(|moved| moved + PATIENCE)
    }

    fn is_stuck(&self, now: Instant) -> bool {
        self.stuck_at().is_some_and(|at| at <= now)
    }

    /// Whether all of it is gone.
    fn flush(&mut self, now: Instant, stream: &UnixStream) -> io::Result<bool> {
        while let Some(rest) = self.bytes.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match stream.try_write(rest) {
                Ok(count) => {
                    self.sent += count;
                    self.moved = Some(now);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.moved.get_or_insert(now);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        // A connection that says nothing holds nothing.
        *self = Self::default();
        Ok(true)
    }
}
