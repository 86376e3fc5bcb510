//! Requests of a node, and news of its devices and rules.

use super::EdgeSession;
use crate::frame::{encode, too_large};
use crate::message::{Der, ToCloud, TokenRequest};
use crate::version;

/// Messages and answers of rules that wait to be sent.
const MAX_RULE_TEXTS: usize = 256;

impl EdgeSession {
    /// Asks for a service account token; the answer comes as [`EdgeEvent::Token`](super::EdgeEvent::Token), or never
    /// when the connection ends. False when the bridge does not know tokens, or too much waits to be sent.
    #[must_use]
    pub fn request_token(&mut self, id: u64, request: TokenRequest) -> bool {
        self.agreed(version::TOKENS) && self.out.control(ToCloud::TokenRequest { id, request })
    }

    /// Asks for a certificate for a new key; the answer comes as [`EdgeEvent::Renewed`](super::EdgeEvent::Renewed), or
    /// never when the connection ends. One at a time. False when the bridge renews nothing, or too much waits to be
    /// sent.
    #[must_use]
    pub fn renew(&mut self, csr: Vec<u8>) -> bool {
        self.agreed(version::RENEW) && self.out.control(ToCloud::Renew { csr: Der(csr) })
    }

    /// Says in which namespaces' Services the node is interested from now on. False when the bridge does not know what
    /// that is, or too much waits to be sent.
    #[must_use]
    pub fn interests(&mut self, namespaces: Vec<String>) -> bool {
        self.agreed(version::INTERESTS) && self.out.control(ToCloud::Interests { namespaces })
    }

    /// Sends reports of devices as soon as the present batch is [acknowledged](super::EdgeEvent::DevicesAcked).
    /// Replaces a batch that still waits for that, because a restarted sender repeats everything. Returns false if the
    /// bridge does not support devices, or if the batch is too large.
    #[must_use]
    pub fn devices(&mut self, batch: u64, devices: Vec<serde_json::Value>) -> bool {
        if !self.agreed(version::DEVICES) {
            return false;
        }
        let text = encode(&ToCloud::Devices { batch, devices });
        let fits = too_large::<ToCloud>(&text).is_none();
        if fits {
            self.devices = Some((batch, text));
        }
        fits
    }

    pub(super) fn next_devices(&mut self) -> Option<String> {
        let (batch, text) = self.devices.take_if(|_| self.devices_under_way.is_none())?;
        self.devices_under_way = Some(batch);
        Some(text)
    }

    /// Sends a row of the message queue, which expires after the given time. After a reconnect repeat rows that are not
    /// [acknowledged](super::EdgeEvent::MessagesAcked). Returns false if the bridge does not support messages, the queue
    /// is full, or the row is too large.
    #[must_use]
    pub fn message(&mut self, id: u64, left_ms: u64, message: serde_json::Value) -> bool {
        self.of_rules(&ToCloud::Message { id, left_ms, message })
    }

    /// Answers an [`EdgeEvent::Call`](super::EdgeEvent::Call). False as of [`message`](Self::message).
    #[must_use]
    pub fn answer(&mut self, id: u64, answer: serde_json::Value) -> bool {
        self.of_rules(&ToCloud::Answer { id, answer })
    }

    /// Sends a [`RuleRequest`](crate::message::RuleRequest), to be answered by
    /// [`EdgeEvent::Response`](super::EdgeEvent::Response) of this number, or never when the connection ends. False
    /// as of [`message`](Self::message).
    #[must_use]
    pub fn request(&mut self, id: u64, request: serde_json::Value) -> bool {
        self.of_rules(&ToCloud::Request { id, request })
    }

    fn of_rules(&mut self, message: &ToCloud) -> bool {
        if !self.agreed(version::RULES) || self.rules.len() >= MAX_RULE_TEXTS {
            return false;
        }
        let text = encode(message);
        let fits = too_large::<ToCloud>(&text).is_none();
        if fits {
            self.rules.push_back(text);
        }
        fits
    }
}
