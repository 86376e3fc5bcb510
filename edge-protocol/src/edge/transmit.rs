//! Order of the frames from a node.

use std::time::Duration;

use super::EdgeSession;
use super::held::Bracket;
use crate::frame::encode;
use crate::message::ToCloud;
use crate::outgoing::{Piece, Whole};
use crate::version;
use crate::wire::{Content, Frame};

impl EdgeSession {
    /// Next frame to write, most urgent first: control, acknowledgements, sync, reports, devices, rules, stream data. For
    /// carriers of texts alone.
    pub fn poll_transmit(&mut self, _now: Duration) -> Option<String> {
        self.next_text().or_else(|| Some(encode(&ToCloud::from(self.streams.poll()?))))
    }

    /// Next frame to write, in the form that was agreed on.
    pub fn poll_frame(&mut self, _now: Duration) -> Option<Frame> {
        let content = match self.next_text() {
            Some(text) => Content::Text(text),
            None => self.streams.poll()?.content::<ToCloud>(self.agreed(version::RAW_STREAMS)),
        };
        Some(Frame::new(content, self.compresses()))
    }

    fn next_text(&mut self) -> Option<String> {
        if let Some(frame) = self.out.next() {
            return Some(frame.into_text());
        }
        self.welcome.as_ref()?;
        let text = self.next_sync().map(|message| encode(&message));
        let text = text.or_else(|| self.reports.next()).or_else(|| self.next_devices());
        let text = text.or_else(|| self.rules.pop_front())?;
        self.out.begin(Whole::Text(text)).map(Piece::into_text)
    }

    fn next_sync(&mut self) -> Option<ToCloud> {
        if let Some(seq) = self.ack.take() {
            return Some(ToCloud::Ack { seq });
        }
        if let Some(message) = self.bracket.as_mut().and_then(Bracket::next_message) {
            return Some(message);
        }
        self.doubts.next_question().map(|objects| ToCloud::Unlisted { objects })
    }
}
