//! What a connection sends next, and the permits that it needs for that.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use edge_protocol::wire::Frame;
use futures::FutureExt;

use super::large::{self, Large};
use super::pending::Done;
use super::{COMING_IN, Connection};
use crate::bridge::node::LinkStats;

impl Connection {
    /// The next frame to send. A waiting large object comes after everything else.
    pub(super) fn next_frame(&mut self) -> Option<Frame> {
        let frame = self.session.poll_frame(&self.node.state(), self.start.elapsed());
        if frame.is_some() {
            self.streams.framed(&self.session);
        }
        self.take_turns();
        if frame.is_some() || !self.session.may_send_large() {
            return frame;
        }
        self.session.poll_frame(&self.node.state(), self.start.elapsed())
    }

    pub(super) fn deadline(&self) -> Duration {
        let deadline = self.renewal.deadline().unwrap_or(Duration::MAX).min(self.session.next_timeout());
        deadline.min(self.large.deadline())
    }

    /// Ends the initial exchange when this node has acknowledged its list and has no more reports, or takes too long.
    pub(super) fn come_in(&mut self) {
        if self.place.is_none() {
            return;
        }
        let done = self.session.acked().is_some() && self.session.report_bytes() == 0;
        if done || self.now() > COMING_IN {
            self.place = None;
        }
    }

    /// Requests a permit to send large objects, and releases it when the node has them or is too slow.
    pub(super) fn take_turns(&mut self) {
        let wants = self.session.wants_large();
        if self.large.is_over(wants || self.session.sends_large(), self.now()) {
            self.large = Large::No;
        }
        match &self.large {
            Large::No if wants => {
                let turn = large::turn(Arc::clone(&self.shared.large));
                self.work.push(turn.map(|turn| turn.map_or(Done::Quiet, Done::Large)).boxed());
                self.large = Large::Asked;
            }
            // The window allows only one at a time.
            Large::Held { .. } if wants => self.session.allow_large(),
            _ => {}
        }
    }

    /// Records the state of the connection for status queries.
    pub(super) fn note(&self) {
        let link_stats = LinkStats {
            heard: Some(SystemTime::now()),
            acked: self.session.acked(),
            down_bytes: self.session.in_flight(),
            up_bytes: self.session.report_bytes(),
            rtt_ms: self.session.rtt_ms(),
        };
        self.node.note(self.session.session(), link_stats);
    }
}
