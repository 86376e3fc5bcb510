//! One connection to the monitor: calls out, answers and news in.

use std::cell::RefCell;
use std::io;
use std::os::unix::net::UnixStream;

use smol::Async;
use smol::channel::Sender;
use smol::future::or;

use super::wire::{receive, send};
use super::{End, Link, Outgoing};
use crate::monitor::client::MonitorEvent;
use crate::sys::time::within;
use crate::sys::vec_map::VecMap;
use sampan_monitor::protocol::{Answer, ContainerState, Event, FromMonitor, Request, VERSION};

type Pending = RefCell<VecMap<u64, Sender<Answer>>>;

impl Link {
    /// Ends with Ok when all handles are dropped or the monitor has agreed to end, with an error when the connection
    /// breaks. Calls without an answer fail by the drop of their reply channel.
    pub(super) async fn converse(
        &self,
        stream: &Async<UnixStream>,
        first: Option<Outgoing>,
        told: &mut Option<Vec<ContainerState>>,
    ) -> io::Result<End> {
        let pending: Pending = RefCell::default();
        let mut buffer = Vec::new();
        let (mut writer, mut reader) = (stream, stream);
        self.silence.asked();
        send(&mut writer, 1, Request::Hello { version: VERSION }).await?;
        send(&mut writer, 2, Request::List).await?;
        // Events between the two answers are older than the list and contained in it.
        let containers = loop {
            match receive(&mut reader, &mut buffer).await? {
                Some(FromMonitor::Answer(answer)) if answer.answer == 2 => {
                    break answer.containers.unwrap_or_default();
                }
                // In no list.
                Some(FromMonitor::Event(Event::LogTrouble { reason })) => self.log_trouble(reason),
                _ => {}
            }
        };
        self.listened.set(true);
        self.silence.heard(false);
        let containers: Vec<_> = containers.into_iter().map(|c| self.amend(c)).collect();
        // A monitor spawned for a start has no containers. Records reported before may be forgotten by now, but starts
        // wait in the queue meanwhile: a list without them would declare them lost.
        if first.is_none() && told.as_ref() != Some(&containers) {
            self.tell(MonitorEvent::Reconnected { containers });
        }
        let write = async {
            let mut seq = 2;
            let mut next = first;
            loop {
                let call = match next.take() {
                    Some(call) => call,
                    None => match within(self.settings.patience / 2, self.calls.recv()).await {
                        Some(Ok(call)) => call,
                        Some(Err(_)) => return Ok(End::Dropped),
                        // The answer is discarded: it only shows that the monitor works.
                        None => Outgoing { request: Request::List, reply: smol::channel::bounded(1).0 },
                    },
                };
                self.silence.asked();
                seq += 1;
                let farewell = matches!(call.request, Request::Shutdown).then(|| smol::channel::bounded(1));
                let reply = farewell.as_ref().map_or_else(|| call.reply.clone(), |(reply, _)| reply.clone());
                pending.borrow_mut().insert(seq, reply);
                send(&mut writer, seq, call.request).await?;
                // Later requests are for the next monitor, if this one agrees to leave.
                if let Some((_, answered)) = farewell
                    && let Ok(answer) = answered.recv().await
                {
                    let agreed = answer.error.is_none();
                    let _ = call.reply.try_send(answer);
                    if agreed {
                        return Ok(End::Left);
                    }
                }
            }
        };
        let read = async {
            loop {
                let message = receive(&mut reader, &mut buffer).await?;
                if let Some(FromMonitor::Answer(answer)) = &message {
                    self.silence.heard(pending.borrow().keys().any(|seq| *seq != answer.answer));
                }
                match message {
                    Some(FromMonitor::Answer(answer)) => {
                        let reply = pending.borrow_mut().remove(&answer.answer);
                        if let Some(reply) = reply {
                            let _ = reply.try_send(answer);
                            // A monitor that agrees to leave closes the connection at once: its answer is delivered
                            // first.
                            smol::future::yield_now().await;
                        }
                    }
                    Some(FromMonitor::Event(event)) => self.pass_on(event),
                    None => {}
                }
            }
        };
        or(write, read).await
    }
}
