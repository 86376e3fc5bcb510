//! Gives the frames of a node to the session.

use std::time::Duration;

use edge_protocol::SessionError;

use super::Connection;
use super::socket::Frame;

impl Connection {
    pub(super) fn take(&mut self, frame: &Frame) -> Result<(), String> {
        let taken = self.frame(frame);
        self.note();
        taken.map_err(|error| error.to_string())
    }

    fn frame(&mut self, frame: &Frame) -> Result<(), SessionError> {
        let now = self.now();
        self.session.set_room(self.stake.room());
        match frame {
            Frame::Text(text) => self.session.handle(&mut self.node.state(), text, now)?,
            Frame::Binary(bytes) => self.session.handle_binary(&mut self.node.state(), bytes, now)?,
        }
        if self.session.is_welcome() && self.renewal.due(now) {
            self.renew(Duration::ZERO);
        }
        Ok(())
    }
}
