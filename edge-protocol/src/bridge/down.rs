//! Data to the node on one connection: resume or full sync, then live changes, within a window.

mod large;

use crate::SessionError;
use crate::frame;
use crate::message::{ObjectDigest, ObjectKey, ObjectRef, ToEdge};
use crate::outgoing::Whole;
use crate::state::{LARGE, LogItem, NodeState};
use large::Large;
use serde::Serialize;
use std::collections::{BTreeSet, VecDeque};

/// Digests in one frame: about 40 KB.
const LIST_CHUNK: usize = 256;

#[derive(Debug)]
pub(super) struct Down {
    step: Step,
    window: usize,
    /// Changes sent and not acknowledged, in order, with their sizes.
    sent: VecDeque<(u64, usize)>,
    in_flight: usize,
    /// The last full list had nothing in it: the node may have doubts.
    listed_nothing: bool,
    acked: Option<u64>,
    large: Large,
}

#[derive(Debug)]
enum Step {
    /// No hello yet.
    Idle,
    /// A full list is due as soon as the state is complete and the window empty.
    Due,
    List {
        seq: u64,
        count: u64,
        rest: VecDeque<ObjectDigest>,
        need: Need,
    },
    /// The list is out; waiting for the last `Need`, sending the bodies already asked for.
    Bodies {
        seq: u64,
        need: Need,
    },
    /// Everything up to `cursor` has been sent.
    Live {
        cursor: u64,
    },
}

/// Requested bodies, by sequence number as of the list. A body that has changed since goes with the live stream.
#[derive(Debug, Default)]
struct Need {
    wanted: BTreeSet<u64>,
    done: bool,
}

impl Down {
    pub(super) fn new(window: usize, by_turns: bool) -> Self {
        let large = if by_turns { Large::ByTurns } else { Large::Always };
        Self {
            step: Step::Idle,
            window,
            sent: VecDeque::new(),
            in_flight: 0,
            listed_nothing: false,
            acked: None,
            large,
        }
    }

    pub(super) fn start(&mut self, resume: Option<u64>) {
        self.step = resume.map_or(Step::Due, |cursor| Step::Live { cursor });
        self.acked = resume;
    }

    pub(super) fn acked(&self) -> Option<u64> {
        self.acked
    }

    pub(super) fn listed_nothing(&self) -> bool {
        self.listed_nothing
    }

    pub(super) fn wants_large(&self) -> bool {
        self.large == Large::Wanted
    }

    pub(super) fn may_send_large(&self) -> bool {
        self.large == Large::Allowed
    }

    pub(super) fn allow_large(&mut self) {
        if self.large != Large::Always {
            self.large = Large::Allowed;
        }
    }

    pub(super) fn large_in_flight(&self) -> bool {
        self.sent.iter().any(|(_, size)| *size > LARGE)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn ack(&mut self, seq: u64) -> Result<(), SessionError> {
        let Some(at) = self.sent.iter().position(|(s, _)| *s == seq) else {
            return Err(SessionError::violation(format!("ack of change {seq}, which is not in flight")));
        };
        self.in_flight -= self.sent.drain(..=at).map(|(_, size)| size).sum::<usize>();
        self.acked = Some(seq);
        Ok(())
    }

    pub(super) fn need(&mut self, state: &NodeState, keys: &[ObjectKey], done: bool) -> Result<(), SessionError> {
        let (at, need) = match &mut self.step {
            Step::List { seq, need, .. } | Step::Bodies { seq, need } if !need.done => (*seq, need),
            _ => return Err(SessionError::violation("need outside a full sync")),
        };
        // A key that is not in the state gets nothing: it is gone, or never was this node's.
        let entries = keys.iter().filter_map(|key| state.entry(key));
        need.wanted.extend(entries.map(|e| e.seq).filter(|seq| *seq <= at));
        need.done = done;
        Ok(())
    }

    /// The next message, if there is one and the window has room for it.
    pub(super) fn next(&mut self, state: &NodeState) -> Option<Whole> {
        loop {
            match &mut self.step {
                Step::Idle => return None,
                Step::Due => {
                    if !state.is_listed() || self.in_flight > 0 {
                        return None;
                    }
                    let rest: VecDeque<_> = state.digests().collect();
                    let (seq, count) = (state.seq(), rest.len() as u64);
                    self.listed_nothing = rest.is_empty();
                    self.step = Step::List { seq, count, rest, need: Need::default() };
                    return Some(message(&ToEdge::SyncBegin { seq, count }));
                }
                Step::List { seq, count, rest, need } => {
                    let (seq, count) = (*seq, *count);
                    if rest.is_empty() {
                        self.step = Step::Bodies { seq, need: std::mem::take(need) };
                        return Some(message(&ToEdge::SyncEnd { seq, count }));
                    }
                    let objects = rest.drain(..rest.len().min(LIST_CHUNK)).collect();
                    return Some(message(&ToEdge::SyncDigests { objects }));
                }
                Step::Bodies { seq, need } => {
                    let done = *seq;
                    if let Some(body) = need.wanted.first().copied() {
                        if self.in_flight >= self.window {
                            return None;
                        }
                        if !self.large.admits(size(state, body)) {
                            return None;
                        }
                        need.wanted.pop_first();
                        let Some(message) = put(state, body, true) else { continue };
                        return Some(self.track(body, message));
                    }
                    if !need.done {
                        return None;
                    }
                    self.step = Step::Live { cursor: done };
                    // Not counted: after an empty list that the node doubts, it has nothing to commit.
                    self.sent.push_back((done, 0));
                    return Some(message(&ToEdge::SyncDone { seq: done }));
                }
                Step::Live { cursor } => {
                    // Tombstones were forgotten that this node has not seen: nothing but a list tells it.
                    if !state.reaches(*cursor) {
                        self.step = Step::Due;
                        continue;
                    }
                    if self.in_flight >= self.window {
                        return None;
                    }
                    let (seq, item) = state.after(*cursor)?;
                    if matches!(item, LogItem::Put(_)) && !self.large.admits(size(state, seq)) {
                        return None;
                    }
                    *cursor = seq;
                    let message = match item {
                        LogItem::Put(_) => put(state, seq, false)?,
                        LogItem::Delete(object) => delete(seq, object),
                    };
                    return Some(self.track(seq, message));
                }
            }
        }
    }

    fn track(&mut self, seq: u64, message: Whole) -> Whole {
        self.sent.push_back((seq, message.len()));
        self.in_flight += message.len();
        message
    }
}

/// Bytes of the object whose newest value has this number.
fn size(state: &NodeState, seq: u64) -> usize {
    match state.item(seq) {
        Some(LogItem::Put(key)) => state.entry(key).map_or(0, |entry| entry.body.text().len()),
        _ => 0,
    }
}

fn message(message: &ToEdge) -> Whole {
    Whole::Text(frame::encode(message))
}

fn delete(seq: u64, object: &ObjectRef) -> Whole {
    message(&ToEdge::Delete { seq, object: object.clone() })
}

/// A `Put` of the object whose newest value has this number, around the body's text as it is.
fn put(state: &NodeState, seq: u64, sync: bool) -> Option<Whole> {
    #[derive(Serialize)]
    struct Head<'a> {
        #[serde(flatten)]
        key: &'a ObjectKey,
        uid: &'a str,
        digest: &'a str,
    }
    let Some(LogItem::Put(key)) = state.item(seq) else { return None };
    let entry = state.entry(key).filter(|e| e.seq == seq)?;
    let head = Head { key, uid: &entry.uid, digest: &entry.digest };
    // Strings in a map: serializing them cannot fail.
    let head = serde_json::to_string(&head).expect("a key is plain data");
    let sync = if sync { ",\"sync\":true" } else { "" };
    let object = head.strip_suffix('}')?;
    let head = format!("{{\"put\":{{\"seq\":{seq}{sync},\"object\":{object},\"body\":");
    Some(Whole::around(head, &entry.body, "}}}"))
}

#[cfg(test)]
mod tests;
