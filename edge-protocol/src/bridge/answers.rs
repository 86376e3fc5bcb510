//! Answers to reports and requests of a node.

use std::collections::HashMap;

use super::{BridgeSession, Size};
use crate::frame::shorten;
use crate::message::{DeviceRefusal, RenewAnswer, ToEdge, TokenAnswer};

impl BridgeSession {
    /// This report is in the API (or was there already).
    pub fn reported(&mut self, id: u64) {
        if self.settle(id) {
            self.acks.push(id);
        }
    }

    /// This report will never be accepted; the node drops it.
    pub fn refuse_report(&mut self, id: u64, reason: impl Into<String>) {
        if self.settle(id) {
            // The queue cannot be full of these: a node has at most MAX_REPORTS under way. Should it be, the
            // row stays in the node's outbox and comes again with the next connection.
            let _ = self.out.control(ToEdge::UpRefuse { id, reason: shorten(reason.into()) });
        }
    }

    /// Answers a [`BridgeEvent::TokenRequest`](super::BridgeEvent::TokenRequest).
    pub fn token(&mut self, id: u64, answer: TokenAnswer) {
        if self.tokens.remove(&id) {
            // A full queue loses an answer: the node asks again with its next connection.
            let _ = self.out.control(ToEdge::Token { id, answer });
        }
    }

    /// Answers a [`BridgeEvent::Renew`](super::BridgeEvent::Renew).
    pub fn renewed(&mut self, answer: RenewAnswer) {
        if std::mem::take(&mut self.renewing) {
            // A full queue loses the answer: the node asks again with its next connection.
            let _ = self.out.control(ToEdge::Renewed { answer });
        }
    }

    /// Answers a [`BridgeEvent::Devices`](super::BridgeEvent::Devices): all of it is in the API, except `refused`.
    pub fn devices_written(&mut self, batch: u64, refused: Vec<DeviceRefusal>) {
        if self.devices.take_if(|under_way| *under_way == batch).is_some() {
            let shorter = |refusal: DeviceRefusal| DeviceRefusal { reason: shorten(refusal.reason), ..refusal };
            let refused = refused.into_iter().map(shorter).collect();
            // A full queue loses the answer: the node tells all again with its next connection.
            let _ = self.out.control(ToEdge::DevicesAck { batch, refused });
        }
    }

    fn settle(&mut self, id: u64) -> bool {
        let size = self.reports.remove(&id);
        let Size { bytes, weight } = size.unwrap_or_default();
        self.report_bytes -= bytes;
        self.report_weight -= weight;
        if self.reports.is_empty() {
            self.reports = HashMap::new();
        }
        size.is_some()
    }
}
