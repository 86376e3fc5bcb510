//! Messages, requests and calls of rules under way on one connection, and their bounds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{BridgeSession, MAX_REPORT_BYTES};
use crate::SessionError;
use crate::frame::{Message, encode};
use crate::message::ToEdge;

/// Messages that a node may have under way. A node of ours has four for each of its rules.
const MAX_MESSAGES: usize = 256;
/// Calls that a node may have to answer, and the bytes of those and of answers that wait to be sent.
const MAX_CALLS: usize = 32;
const MAX_CALL_BYTES: usize = 2 << 20;
/// An answer for which there is always room: there is one for each request that was taken.
const SHORT: usize = 4 << 10;
/// Requests of a node under way; a node of ours has half as many, and those of a helper that has died.
const MAX_REQUESTS: usize = 32;
/// Numbers of calls of one connection, in bits; above them is its fencing number.
const CALL_BITS: u32 = 20;

#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) takes: bool,
    /// Messages by row, with their sizes.
    messages: BTreeMap<u64, usize>,
    bytes: usize,
    acks: Vec<u64>,
    /// Requests by number, with their sizes.
    requests: BTreeMap<u64, usize>,
    calls: BTreeSet<u64>,
    last_call: u64,
    /// Texts that wait to be sent.
    texts: VecDeque<String>,
    text_bytes: usize,
}

impl Rules {
    pub(super) fn message(&mut self, id: u64, bytes: usize) -> Result<(), SessionError> {
        if !self.takes {
            return Err(SessionError::violation("a message of rules that nobody has asked for"));
        }
        if self.messages.len() >= MAX_MESSAGES || self.bytes >= MAX_REPORT_BYTES {
            return Err(SessionError::violation("more messages under way than any node has"));
        }
        if self.messages.insert(id, bytes).is_some() {
            return Err(SessionError::violation(format!("message {id} came again while under way")));
        }
        self.bytes += bytes;
        Ok(())
    }

    pub(super) fn request(&mut self, id: u64, bytes: usize) -> Result<(), SessionError> {
        if !self.takes {
            return Err(SessionError::violation("a request of rules that nobody has asked for"));
        }
        if self.requests.len() >= MAX_REQUESTS || self.requests.values().sum::<usize>() >= MAX_REPORT_BYTES {
            return Err(SessionError::violation("more requests under way than any node has"));
        }
        match self.requests.insert(id, bytes) {
            None => Ok(()),
            Some(_) => Err(SessionError::violation(format!("request {id} came again while under way"))),
        }
    }

    /// Whether a caller waits for the answer.
    pub(super) fn answered(&mut self, id: u64) -> Result<bool, SessionError> {
        // A late answer is harmless; an answer to a call that was never made belongs to another connection, at best.
        if id > self.last_call || id >> CALL_BITS != self.last_call >> CALL_BITS {
            return Err(SessionError::violation("an answer to what nobody has asked"));
        }
        Ok(self.calls.remove(&id))
    }

    pub(super) fn next_text(&mut self) -> Option<String> {
        if !self.acks.is_empty() {
            return Some(encode(&ToEdge::MessageAck { ids: std::mem::take(&mut self.acks) }));
        }
        let text = self.texts.pop_front();
        match &text {
            Some(text) => self.text_bytes -= text.len(),
            None if self.texts.capacity() > 0 => self.texts = VecDeque::new(),
            None => {}
        }
        text
    }
}

impl BridgeSession {
    /// Whether the node takes calls.
    pub fn takes_rules(&self) -> bool {
        self.rules.takes
    }

    /// Acknowledges this [`Message`](super::BridgeEvent::Message).
    pub fn message_done(&mut self, id: u64) {
        if let Some(bytes) = self.rules.messages.remove(&id) {
            self.rules.bytes -= bytes;
            self.rules.acks.push(id);
        }
    }

    /// Answers [`Request`](super::BridgeEvent::Request) of this number. False when the node reads too little of what it has asked
    /// for: then a short answer may be tried.
    pub fn respond(&mut self, id: u64, response: serde_json::Value) -> bool {
        let rules = &mut self.rules;
        if !rules.requests.contains_key(&id) {
            return true;
        }
        let text = encode(&ToEdge::Response { id, response });
        if text.len() > SHORT && rules.text_bytes >= MAX_CALL_BYTES || text.len() > ToEdge::MAX {
            return false;
        }
        rules.requests.remove(&id);
        rules.text_bytes += text.len();
        rules.texts.push_back(text);
        true
    }

    /// Sends a [`Call`](crate::message::Call) to the node, and returns its number. The answer is an
    /// [`Answer`](super::BridgeEvent::Answer) with this number, or missing when the connection ends. `None` if the node
    /// does not support calls, or has too many.
    pub fn call(&mut self, call: serde_json::Value) -> Option<u64> {
        let rules = &mut self.rules;
        if !rules.takes || rules.calls.len() >= MAX_CALLS || rules.text_bytes >= MAX_CALL_BYTES {
            return None;
        }
        let id = rules.last_call.max(self.settings.session << CALL_BITS) + 1;
        if id >> CALL_BITS != self.settings.session {
            // A million calls: the next connection has new numbers.
            return None;
        }
        let text = encode(&ToEdge::Call { id, call });
        if text.len() > ToEdge::MAX {
            return None;
        }
        rules.last_call = id;
        rules.calls.insert(id);
        rules.text_bytes += text.len();
        rules.texts.push_back(text);
        Some(id)
    }

    /// Forgets a call whose caller has given up.
    pub fn forget_call(&mut self, id: u64) {
        self.rules.calls.remove(&id);
    }
}
