//! Order of the frames to a node.

use std::time::Duration;

use super::{BridgeSession, Phase};
use crate::frame::encode;
use crate::message::ToEdge;
use crate::outgoing::{Piece, Whole};
use crate::state::NodeState;
use crate::stream::StreamFrame;
use crate::wire::{Content, Frame};

impl BridgeSession {
    /// Next frame to write, most urgent first: control, acknowledgements, sync and changes, stream data. For carriers
    /// of texts alone.
    pub fn poll_transmit(&mut self, state: &NodeState, _now: Duration) -> Option<String> {
        match self.next_piece(state) {
            Some(piece) => Some(piece.into_text()),
            None => Some(encode(&ToEdge::from(self.next_stream(state)?))),
        }
    }

    /// Next frame to write, in the form that was agreed on.
    pub fn poll_frame(&mut self, state: &NodeState, _now: Duration) -> Option<Frame> {
        let content = match self.next_piece(state) {
            Some(Piece::Text(text)) => Content::Text(text),
            Some(Piece::Shared(slice)) => return Some(Frame::shared(slice, self.compresses)),
            None => self.next_stream(state)?.content::<ToEdge>(self.raw_streams),
        };
        // The welcome announces that frames may be packed: before it this is not agreed.
        let greets = matches!(&content, Content::Text(text) if text.starts_with("{\"welcome\":"));
        Some(Frame::new(content, self.compresses && !greets))
    }

    fn may_speak(&self, state: &NodeState) -> bool {
        self.phase == Phase::Welcome && state.session() == self.settings.session
    }

    fn next_stream(&mut self, state: &NodeState) -> Option<StreamFrame> {
        if self.may_speak(state) { self.streams.poll() } else { None }
    }

    fn next_piece(&mut self, state: &NodeState) -> Option<Piece> {
        if let Some(frame) = self.out.next() {
            return Some(frame);
        }
        if !self.may_speak(state) {
            return None;
        }
        if !self.acks.is_empty() {
            let ids = std::mem::take(&mut self.acks);
            return Some(Piece::Text(encode(&ToEdge::UpAck { ids })));
        }
        if let Some(text) = self.rules.next_text() {
            return self.out.begin(Whole::Text(text));
        }
        let message = self.down.next(state)?;
        self.out.begin(message)
    }
}
