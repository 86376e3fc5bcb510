//! Streams that the bridge has opened, and requests of pods to the API.

use super::EdgeSession;
use crate::message::{ApiRequest, StreamId};
use crate::stream::StreamError;
use crate::version;

impl EdgeSession {
    /// Whether the bridge passes requests of pods on to the API.
    pub fn passes_api(&self) -> bool {
        self.agreed(version::API)
    }

    /// Sends a pod's request to the API. Its body and the answer are records in both directions, as described at
    /// [`ApiRequest`]; the stream's events are the same as those of streams that the bridge opens.
    ///
    /// # Errors
    /// The bridge passes on no requests, too many are under way, or the request is not one that it passes on.
    pub fn open_api(&mut self, request: ApiRequest) -> Result<StreamId, StreamError> {
        if self.passes_api() { self.streams.open_api(request) } else { Err(StreamError::NotAgreed) }
    }

    /// Streams that end with this connection: notify their users when it breaks.
    pub fn open_streams(&self) -> Vec<StreamId> {
        self.streams.ids()
    }

    /// Bytes that `stream_send` takes now; 0 for a closed stream.
    pub fn stream_room(&self, stream: StreamId) -> usize {
        self.streams.room(stream)
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
