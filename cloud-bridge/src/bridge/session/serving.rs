//! The streams of a connection: their readers, and bytes that wait for the node's credit.
//!
//! Does not interpret the bytes; the session counts the credit.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use edge_protocol::bridge::BridgeSession;
use edge_protocol::message::{StreamId, StreamRequest};
use edge_protocol::stream::StreamEvent;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::AbortHandle;

use crate::bridge::api_proxy;
use crate::bridge::api_proxy::head::PodClaim;
use crate::bridge::chunks::{ChunkSender, Chunks};
use crate::bridge::node::OpenStream;
use crate::bridge::stream_memory::ROOM;
use crate::bridge::streams;
use kubelet_api::backend::BackendError;

struct Stream {
    chunks: ChunkSender,
    waiting: VecDeque<u8>,
    room: Arc<Semaphore>,
    request: Option<PodRequest>,
}

/// A request of a pod to the API, which the stream is for.
struct PodRequest {
    pod: PodClaim,
    task: AbortHandle,
    /// Bytes of the answer that the session has, and that wait for the line.
    passed: usize,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.room.close();
        if let Some(request) = &self.request {
            request.task.abort();
        }
    }
}

/// Streams by their number.
#[derive(Default)]
pub(super) struct Serving {
    streams: HashMap<StreamId, Stream>,
}

impl Serving {
    pub(super) fn open(
        &mut self,
        session: &mut BridgeSession,
        request: StreamRequest,
        answer: oneshot::Sender<Result<OpenStream, BackendError>>,
    ) {
        let opened = session.open_stream(request).map_err(|error| BackendError::Unavailable(error.to_string()));
        let opened = opened.map(|id| {
            let (sender, chunks) = Chunks::new();
            let room = Arc::new(Semaphore::new(ROOM));
            let stream = Stream { chunks: sender, waiting: VecDeque::new(), room: Arc::clone(&room), request: None };
            self.streams.insert(id, stream);
            OpenStream { id, chunks, room }
        });
        if let Err(Ok(opened)) = answer.send(opened) {
            self.end(session, opened.id);
        }
    }

    /// The node has opened this stream for a request of a pod. `start` starts the task of the request, which ends with
    /// the stream.
    pub(super) fn accept(&mut self, id: StreamId, pod: PodClaim, start: impl FnOnce(OpenStream) -> AbortHandle) {
        let (sender, chunks) = Chunks::new();
        let room = Arc::new(Semaphore::new(api_proxy::ROOM));
        let task = start(OpenStream { id, chunks, room: Arc::clone(&room) });
        let request = Some(PodRequest { pod, task, passed: 0 });
        self.streams.insert(id, Stream { chunks: sender, waiting: VecDeque::new(), room, request });
    }

    /// Number of open requests of the pod with this uid.
    pub(super) fn requests_of(&self, pod: &str) -> usize {
        let requests = self.streams.values().filter_map(|stream| stream.request.as_ref());
        requests.filter(|request| request.pod.uid == pod).count()
    }

    /// Ends the requests of these pods.
    pub(super) fn end_requests(&mut self, session: &mut BridgeSession, is_over: impl Fn(&PodClaim) -> bool) {
        let over = |stream: &Stream| stream.request.as_ref().is_some_and(|request| is_over(&request.pod));
        for (id, _) in self.streams.extract_if(|_, stream| over(stream)) {
            session.stream_end(id, Some("its pod is not on this node any more".to_owned()));
        }
    }

    pub(super) fn send(&mut self, session: &mut BridgeSession, id: StreamId, data: Vec<u8>) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.waiting.extend(data);
        self.flush(session, id);
    }

    /// Passes on the bytes for which the node has credit.
    fn flush(&mut self, session: &mut BridgeSession, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let now = session.stream_room(id).min(stream.waiting.len());
        if now == 0 {
            return;
        }
        let data: Vec<u8> = stream.waiting.drain(..now).collect();
        match session.stream_send(id, &data) {
            Ok(()) => match &mut stream.request {
                Some(request) => request.passed += now,
                None => stream.room.add_permits(now),
            },
            // Room was checked above, so the stream has ended, and its end is about to arrive.
            Err(error) => log::debug!("stream {id}: {error}"),
        }
    }

    /// The session has given a frame away: requests of pods have room again for what is in frames. So the room of a
    /// request is all that it holds here, whatever the node has credit for.
    pub(super) fn framed(&mut self, session: &BridgeSession) {
        for (id, stream) in &mut self.streams {
            let Some(request) = &mut stream.request else { continue };
            let left = session.stream_waiting(*id).min(request.passed);
            stream.room.add_permits(request.passed - left);
            request.passed = left;
        }
    }

    /// The reader has gone.
    pub(super) fn end(&mut self, session: &mut BridgeSession, id: StreamId) {
        if self.streams.remove(&id).is_some() {
            session.stream_end(id, None);
        }
    }

    pub(super) fn event(&mut self, session: &mut BridgeSession, event: StreamEvent) {
        match event {
            StreamEvent::Data { stream, data } => {
                // A reader that went before it knew the number of its stream cannot end it by a command.
                if self.streams.get(&stream).is_some_and(|reader| !reader.chunks.send(data)) {
                    self.end(session, stream);
                }
            }
            StreamEvent::Closed { stream, error } => {
                if let (Some(reader), Some(error)) = (self.streams.remove(&stream), error) {
                    reader.chunks.fail(streams::error_of(error));
                }
            }
            StreamEvent::Room { stream } => self.flush(session, stream),
            // Only nodes serve streams.
            StreamEvent::Opened { .. } => {}
        }
    }

    /// The connection has ended.
    pub(super) fn fail(&mut self, node: &str) {
        for (_, reader) in self.streams.drain() {
            let gone = BackendError::Unavailable(format!("the connection to node {node} broke"));
            reader.chunks.fail(gone);
        }
    }
}
