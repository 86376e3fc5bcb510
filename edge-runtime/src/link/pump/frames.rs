//! Moves frames between one socket and its session until the connection ends.

use super::{DOUBT, Link, LinkError};
use crate::counters::{self, Counter};
use crate::link::dial::Socket;
use crate::link::{LinkEvent, News};
use async_tungstenite::tungstenite::Message;
use edge_protocol::edge::{Change, EdgeEvent, EdgeSession};
use edge_protocol::wire::{self, Wire};
use futures_sink::Sink;
use smol::channel::TrySendError;
use smol::stream::Stream;
use smol::{Timer, future};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Frames handled before the node loop gets a turn, and changes given to it at once.
const BATCH: usize = 64;

type Sending<'a> = Pin<Box<dyn Future<Output = Result<(), LinkError>> + 'a>>;

impl Link<'_> {
    pub(super) async fn pump(&self, socket: &mut Socket) -> Result<Infallible, LinkError> {
        let mut pending = VecDeque::new();
        let mut timer = Timer::never();
        // Lives over many polls: a dropped listener misses events.
        let mut woken = std::pin::pin!(self.wakers.woken.clone());
        let mut armed = None;
        let local = socket.get_ref().get_ref().0.get_ref().local_addr().ok().map(|address| address.ip());
        let mut moved = Box::pin(self.network.changed());
        // A send that has to wait keeps its event, and is polled along with everything else.
        let mut sending: Option<Sending<'_>> = None;
        loop {
            while sending.is_none()
                && let Some(event) = pending.pop_front()
            {
                match self.events.try_send(event) {
                    Ok(()) => {}
                    Err(TrySendError::Full(event)) => sending = Some(Box::pin(self.send(event))),
                    Err(TrySendError::Closed(_)) => return Err(LinkError::Stopped),
                }
            }
            future::poll_fn(|cx| {
                let mut progress = false;
                if let Some(send) = &mut sending
                    && let Poll::Ready(result) = send.as_mut().poll(cx)
                {
                    sending = None;
                    result?;
                    progress = true;
                }
                let now = self.clock.elapsed();
                self.time(now, sending.is_some())?;
                if let Poll::Ready(way) = moved.as_mut().poll(cx) {
                    if way.source.is_some() && way.source != local {
                        // The source address of this connection is not on the present route any more.
                        return Poll::Ready(Err(LinkError::Moved));
                    }
                    self.with(|s| s.doubt(now, DOUBT))?;
                    moved = Box::pin(self.network.changed());
                    progress = true;
                }
                self.write(socket, cx, now)?;
                self.tell_up(now);
                if sending.is_none() {
                    self.read(socket, cx, now, &mut pending)?;
                    // Received messages may need an immediate answer (empty acks, pings, stream ends).
                    self.write(socket, cx, now)?;
                }
                progress |= woken.as_mut().poll_next(cx).is_ready();
                let next = self.with(|s| s.next_timeout());
                if armed != Some(next) {
                    armed = Some(next);
                    timer.set_at(self.clock + next);
                }
                progress |= Pin::new(&mut timer).poll(cx).is_ready();
                if progress || !pending.is_empty() { Poll::Ready(Ok::<(), LinkError>(())) } else { Poll::Pending }
            })
            .await?;
            if armed.is_some_and(|at| at <= self.clock.elapsed()) {
                armed = None;
            }
        }
    }

    fn time(&self, now: Duration, paused: bool) -> Result<(), LinkError> {
        self.with(|session| {
            if paused {
                // It is this side that does not listen: no reason to hold the bridge for dead.
                session.heard(now);
            }
            if now >= session.next_timeout() { Ok(session.on_timeout(now)?) } else { Ok(()) }
        })
    }

    fn write(&self, socket: &mut Socket, cx: &mut Context<'_>, now: Duration) -> Result<(), LinkError> {
        let failed = |e| LinkError::Websocket(Box::new(e));
        loop {
            // A frame is taken from the session only when the socket has room: until then it may coalesce.
            match Sink::poll_ready(Pin::new(&mut *socket), cx) {
                Poll::Ready(result) => result.map_err(failed)?,
                Poll::Pending => return Ok(()),
            }
            let Some(frame) = self.with(|s| s.poll_frame(now)) else { break };
            let wire = frame.wire();
            count_sent(&wire);
            let message = match wire {
                Wire::Text(text) => Message::text(text),
                Wire::Binary(bytes) => Message::binary(bytes),
                Wire::Shared(bytes) => Message::binary(bytes.to_vec()),
            };
            Sink::start_send(Pin::new(&mut *socket), message).map_err(failed)?;
        }
        match Sink::poll_flush(Pin::new(socket), cx) {
            Poll::Ready(result) => result.map_err(failed),
            Poll::Pending => Ok(()),
        }
    }

    fn read(
        &self,
        socket: &mut Socket,
        cx: &mut Context<'_>,
        now: Duration,
        pending: &mut VecDeque<LinkEvent>,
    ) -> Result<(), LinkError> {
        for _ in 0..BATCH {
            match Stream::poll_next(Pin::new(&mut *socket), cx) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(Message::Text(text)))) => {
                    counters::LINK_RECEIVED_MESSAGES.add(text.len() as u64);
                    let result = self.with(|s| s.handle(&text, now));
                    self.collect(pending);
                    result?;
                }
                Poll::Ready(Some(Ok(Message::Binary(bytes)))) => {
                    received(&bytes).add(bytes.len() as u64);
                    let result = self.with(|s| s.handle_binary(&bytes, now));
                    self.collect(pending);
                    result?;
                }
                Poll::Ready(Some(Ok(Message::Close(frame)))) => {
                    let reason = frame.map(|f| format!(": {} ({})", f.reason, f.code)).unwrap_or_default();
                    return Err(LinkError::Closed(reason));
                }
                Poll::Ready(Some(Ok(_))) => {} // websocket pings: the library answers
                Poll::Ready(Some(Err(e))) => return Err(LinkError::Websocket(Box::new(e))),
                Poll::Ready(None) => return Err(LinkError::Closed(String::new())),
            }
        }
        Ok(())
    }

    /// Session events as link events; changes and acknowledgements that come together go together.
    fn collect(&self, pending: &mut VecDeque<LinkEvent>) {
        self.with(|session| {
            while let Some(event) = session.poll_event() {
                match (event, pending.back_mut()) {
                    (EdgeEvent::Change(change), _) => match last_changes(pending) {
                        Some(changes) => changes.push(change),
                        None => {
                            let stream = session.stream().to_owned();
                            pending.push_back(LinkEvent::Changes { stream, changes: vec![change] });
                        }
                    },
                    (EdgeEvent::UpAcked(id), Some(LinkEvent::UpAcked(ids))) => ids.push(id),
                    (EdgeEvent::UpAcked(id), _) => pending.push_back(LinkEvent::UpAcked(vec![id])),
                    (EdgeEvent::UpRefused(id, reason), _) => pending.push_back(LinkEvent::UpRefused(id, reason)),
                    (EdgeEvent::Welcome(welcome), _) => {
                        counters::LINK_WELCOMES.one();
                        if let Some(terms) = welcome.identity {
                            let _ = self.shared.renewal.try_send(News::Welcome(terms));
                        }
                        pending.push_back(LinkEvent::Connected(welcome));
                    }
                    (EdgeEvent::Renewed(answer), _) => {
                        let _ = self.shared.renewal.try_send(News::Answer(answer));
                    }
                    (EdgeEvent::Token { id, answer }, _) => pending.push_back(LinkEvent::Token { id, answer }),
                    (EdgeEvent::DevicesAcked { batch, refused }, _) => {
                        pending.push_back(LinkEvent::DevicesAcked { batch, refused });
                    }
                    (EdgeEvent::MessagesAcked(ids), _) => pending.push_back(LinkEvent::MessagesAcked(ids)),
                    (EdgeEvent::Call { id, call }, _) => pending.push_back(LinkEvent::Call { id, call }),
                    (EdgeEvent::Response { id, response }, _) => {
                        pending.push_back(LinkEvent::Response { id, response })
                    }
                    (EdgeEvent::Stream(event), _) => pending.push_back(LinkEvent::Stream(event)),
                }
            }
        });
    }

    fn with<R>(&self, act: impl FnOnce(&mut EdgeSession) -> R) -> R {
        let mut session = self.shared.session.borrow_mut();
        // Set before the pump starts, taken only after it has ended.
        act(session.as_mut().expect("a session while its connection is pumped"))
    }
}

/// The changes that one more joins. The node syncs its store once for all of them, so they also join across answers to
/// the node, on which no change depends.
fn last_changes(pending: &mut VecDeque<LinkEvent>) -> Option<&mut Vec<Change>> {
    let is_answer = |event: &&mut LinkEvent| matches!(event, LinkEvent::UpAcked(_) | LinkEvent::Token { .. });
    match pending.iter_mut().rev().find(|event| !is_answer(event))? {
        LinkEvent::Changes { changes, .. } if changes.len() < BATCH => Some(changes),
        _ => None,
    }
}

fn count_sent(wire: &Wire) {
    let (counter, length) = match wire {
        Wire::Text(text) => (&counters::LINK_SENT_MESSAGES, text.len()),
        Wire::Shared(bytes) => (&counters::LINK_SENT_MESSAGES, bytes.len()),
        Wire::Binary(bytes) if wire::is_stream(bytes) => (&counters::LINK_SENT_STREAMS, bytes.len()),
        Wire::Binary(bytes) => (&counters::LINK_SENT_MESSAGES, bytes.len()),
    };
    counter.add(length as u64);
}

fn received(bytes: &[u8]) -> &'static Counter {
    if wire::is_stream(bytes) { &counters::LINK_RECEIVED_STREAMS } else { &counters::LINK_RECEIVED_MESSAGES }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_join_across_answers_to_the_node() {
        let changes = |count: usize| {
            let change = Change::SyncComplete { seq: 1, absent: Vec::new() };
            LinkEvent::Changes { stream: String::new(), changes: vec![change; count] }
        };
        let acked = || LinkEvent::UpAcked(vec![1]);
        let joins = |events: Vec<LinkEvent>| last_changes(&mut events.into()).is_some();
        assert!(joins(vec![changes(1)]) && joins(vec![changes(BATCH - 1), acked(), acked()]));
        assert!(!joins(Vec::new()) && !joins(vec![acked()]) && !joins(vec![changes(BATCH)]));
        assert!(!joins(vec![changes(1), LinkEvent::MessagesAcked(vec![1]), acked()]), "order of other events stays");
    }
}
