//! What each message of the bridge does to a node's session. Every rule that a bridge could break is here.

use super::held::{Bracket, Doubts};
use super::{Change, EdgeEvent, EdgeSession, MAX_UNCOMMITTED};
use crate::SessionError;
use crate::frame::shorten;
use crate::message::{Object, ObjectDigest, ObjectRef, ToCloud, ToEdge};
use crate::version::{self, ProtocolRange, Welcome};
use std::time::Duration;

impl EdgeSession {
    pub(super) fn dispatch(&mut self, message: ToEdge) -> Result<(), SessionError> {
        match message {
            ToEdge::Welcome(welcome) => return self.on_welcome(welcome),
            ToEdge::Refuse { reason, message } => return Err(SessionError::Refused { reason, message }),
            _ if self.welcome.is_none() => return Err(SessionError::violation("a message before the welcome")),
            _ => {}
        }
        let stream_event = match message {
            ToEdge::SyncBegin { seq, count } => return self.on_sync_begin(seq, count),
            ToEdge::SyncDigests { objects } => return bracket(&mut self.bracket)?.digests(&objects, &mut self.held),
            ToEdge::SyncEnd { seq, count } => return bracket(&mut self.bracket)?.end(seq, count),
            ToEdge::SyncDone { seq } => return self.on_sync_done(seq),
            ToEdge::Put { seq, sync, object } => return self.on_put(seq, sync, object),
            ToEdge::Delete { seq, object } => return self.on_delete(seq, object),
            ToEdge::UpAck { ids } => {
                for id in ids {
                    // An id that is not in flight was acknowledged twice: nothing to tell.
                    if self.reports.settle(id) {
                        self.events.push_back(EdgeEvent::UpAcked(id));
                    }
                }
                None
            }
            ToEdge::UpRefuse { id, reason } => {
                if self.reports.settle(id) {
                    self.events.push_back(EdgeEvent::UpRefused(id, reason));
                }
                None
            }
            ToEdge::StreamOpen { stream, request, credit } => self.streams.opened(stream, request, credit),
            ToEdge::StreamData { stream, data } => self.streams.data(stream, data),
            ToEdge::StreamCredit { stream, bytes } => self.streams.credit(stream, bytes),
            ToEdge::StreamEnd { stream, error } => self.streams.ended(stream, error),
            ToEdge::Token { id, answer } => {
                self.events.push_back(EdgeEvent::Token { id, answer });
                None
            }
            ToEdge::Renewed { answer } => {
                self.events.push_back(EdgeEvent::Renewed(answer));
                None
            }
            ToEdge::MessageAck { ids } => {
                self.events.push_back(EdgeEvent::MessagesAcked(ids));
                None
            }
            ToEdge::Call { id, call } => {
                self.events.push_back(EdgeEvent::Call { id, call });
                None
            }
            ToEdge::Response { id, response } => {
                self.events.push_back(EdgeEvent::Response { id, response });
                None
            }
            ToEdge::DevicesAck { batch, refused } => {
                // A repeated acknowledgement is ignored.
                if self.devices_under_way == Some(batch) {
                    self.devices_under_way = None;
                    self.events.push_back(EdgeEvent::DevicesAcked { batch, refused });
                }
                None
            }
            ToEdge::Pong {} | ToEdge::Unsupported { .. } => None,
            ToEdge::Welcome(_) | ToEdge::Refuse { .. } | ToEdge::Part { .. } => None, // dealt with before
        };
        self.events.extend(stream_event.map(EdgeEvent::Stream));
        if self.streams.flooded() {
            return Err(SessionError::violation("too many stream frames that need an answer"));
        }
        Ok(())
    }

    fn on_welcome(&mut self, welcome: Welcome) -> Result<(), SessionError> {
        if self.welcome.is_some() {
            return Err(SessionError::violation("a second welcome"));
        }
        let ProtocolRange { min, max } = version::SUPPORTED;
        if !(min..=max).contains(&welcome.protocol) {
            return Err(SessionError::violation(format!("welcome to protocol {} not offered", welcome.protocol)));
        }
        if welcome.cluster.is_empty() || welcome.stream.is_empty() {
            return Err(SessionError::violation("a welcome without cluster or stream"));
        }
        if self.facts.cluster.as_ref().is_some_and(|known| *known != welcome.cluster) {
            let message = format!("this bridge serves cluster {}", shorten(welcome.cluster));
            return Err(SessionError::Refused { reason: version::RefuseReason::WrongCluster, message });
        }
        if welcome.resume {
            let offered = self.facts.position.take().filter(|p| p.stream == welcome.stream);
            let Some(position) = offered else {
                return Err(SessionError::violation("resume of a stream not offered"));
            };
            self.newest = position.seq;
        }
        // Between a second and an hour, so that a wrong value cannot flood the line or hide a dead peer forever.
        let heartbeat = Duration::from_millis(welcome.heartbeat_ms.clamp(1_000, 3_600_000));
        self.liveness.set_heartbeat(heartbeat);
        self.events.push_back(EdgeEvent::Welcome(welcome.clone()));
        self.welcome = Some(welcome);
        Ok(())
    }

    fn on_sync_begin(&mut self, seq: u64, count: u64) -> Result<(), SessionError> {
        if self.bracket.is_some() {
            return Err(SessionError::violation("a full sync inside a full sync"));
        }
        if seq < self.newest {
            return Err(SessionError::violation(format!("full sync at {seq} after change {}", self.newest)));
        }
        self.held.begin();
        self.doubts = Doubts::default();
        self.bracket = Some(Bracket::new(seq, count)?);
        Ok(())
    }

    fn on_put(&mut self, seq: u64, sync: bool, object: Object) -> Result<(), SessionError> {
        let before = self.newest;
        if sync {
            bracket(&mut self.bracket)?.body(seq, &object.digest)?;
        } else {
            self.advance(seq)?;
            self.doubts.settle(|doubt| doubt.key == object.digest.key);
        }
        let sync = sync || !self.doubts.is_empty();
        let ObjectDigest { key, .. } = &object.digest;
        if let Some(uid) = self.held.put(&object.digest) {
            // If only this is committed, the next connection must not resume after the object that replaces it.
            let seq = if sync { seq } else { before };
            self.change(Change::Delete { key: key.clone(), uid, seq, sync })?;
        }
        self.change(Change::Put { object, seq, sync })
    }

    fn on_delete(&mut self, seq: u64, object: ObjectRef) -> Result<(), SessionError> {
        self.advance(seq)?;
        self.doubts.settle(|doubt| doubt.key == object.key && doubt.uid == object.uid);
        let sync = !self.doubts.is_empty();
        let ObjectRef { key, uid } = object;
        self.held.forget(&key, &uid);
        self.change(Change::Delete { key, uid, seq, sync })
    }

    fn on_sync_done(&mut self, seq: u64) -> Result<(), SessionError> {
        let bracket = self.bracket.take().ok_or_else(|| SessionError::violation("end of no full sync"))?;
        let authoritative = bracket.done(seq)?;
        self.newest = seq;
        let absent = self.held.unlisted();
        if authoritative || absent.is_empty() {
            absent.iter().for_each(|o| self.held.forget(&o.key, &o.uid));
            return self.change(Change::SyncComplete { seq, absent });
        }
        // An empty list deletes nothing: more likely than a node that lost all its pods at once is a mistake
        // above. The bridge looks each one up and sends tombstones for what is really gone. Until it has, no
        // position is stored, so that a cut connection begins again here.
        self.doubts = Doubts::new(absent);
        Ok(())
    }

    /// Live numbers only rise; gaps are normal, since only the newest value of a key travels.
    fn advance(&mut self, seq: u64) -> Result<(), SessionError> {
        if self.bracket.is_some() {
            return Err(SessionError::violation(format!("live change {seq} inside a full sync")));
        }
        if seq <= self.newest {
            return Err(SessionError::violation(format!("change {seq} after change {}", self.newest)));
        }
        self.newest = seq;
        Ok(())
    }

    fn change(&mut self, change: Change) -> Result<(), SessionError> {
        if self.uncommitted.len() >= MAX_UNCOMMITTED {
            return Err(SessionError::violation("more changes in flight than any window allows"));
        }
        // A Delete with a Put has the number of the change before; one entry stands for both.
        if self.uncommitted.back() != Some(&change.seq()) {
            self.uncommitted.push_back(change.seq());
        }
        self.events.push_back(EdgeEvent::Change(change));
        Ok(())
    }

    pub(super) fn control(&mut self, message: ToCloud) -> Result<(), SessionError> {
        if self.out.control(message) {
            return Ok(());
        }
        Err(SessionError::violation("the peer asks for more answers than it reads"))
    }
}

fn bracket(bracket: &mut Option<Bracket>) -> Result<&mut Bracket, SessionError> {
    bracket.as_mut().ok_or_else(|| SessionError::violation("part of a full sync without its begin"))
}
