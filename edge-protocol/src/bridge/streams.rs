//! Streams that the node is asked to serve, and those of requests to the API that it has opened.

use super::BridgeSession;
use crate::message::{StreamId, StreamRequest};
use crate::stream::StreamError;

impl BridgeSession {
    /// Asks the node to serve a stream.
    ///
    /// # Errors
    /// Too many streams are open.
    pub fn open_stream(&mut self, request: StreamRequest) -> Result<StreamId, StreamError> {
        self.streams.open(request)
    }

    /// Streams that end with this connection: notify their users when it breaks.
    pub fn open_streams(&self) -> Vec<StreamId> {
        self.streams.ids()
    }

    /// Bytes that `stream_send` takes now; 0 for a closed stream.
    pub fn stream_room(&self, stream: StreamId) -> usize {
        self.streams.room(stream)
    }

    /// Bytes of [`stream_send`](Self::stream_send) that are in no frame yet; 0 for a closed stream.
    pub fn stream_waiting(&self, stream: StreamId) -> usize {
        self.streams.waiting(stream)
    }

    /// # Errors
    /// The stream is closed, or the data is more than [`stream_room`](Self::stream_room).
    pub fn stream_send(&mut self, stream: StreamId, data: &[u8]) -> Result<(), StreamError> {
        self.streams.send(stream, data)
    }

    /// Received bytes are dealt with; the peer may send as many again.
    pub fn stream_consumed(&mut self, stream: StreamId, bytes: usize) {
        self.streams.consumed(stream, bytes);
    }

    /// Ends a stream. Data sent before is still delivered, unless there is an error.
    pub fn stream_end(&mut self, stream: StreamId, error: Option<String>) {
        self.streams.end(stream, error);
    }
}
