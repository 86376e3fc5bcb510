//! Requests of pods to the API that arrive on the link of their node.
//!
//! `head` decides on a request by its head, `memory` and `rate` limit requests (all pure), `upstream` reaches the API, and
//! here one request is carried out: its body comes from the stream, the answer goes to it. A pod's own token is all that
//! the API sees; no right of the node or of the bridge is used. The task of a request ends with its stream, which cancels
//! the request.

pub(super) mod head;
mod memory;
mod rate;
pub mod upstream;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use edge_protocol::channel::{self, CLOSE, Records, STATUS, STDIN, STDOUT};
use edge_protocol::message::{ApiRequest, MAX_API_BODY};
use futures::channel::mpsc::UnboundedSender;
use http::Response;
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep, timeout};

use super::chunks::Chunks;
use super::counters;
use super::node::{Command, OpenStream};
use super::stream_memory::CREDIT;
use head::Refusal;
use upstream::{AnswerBody, Upstream};

pub(super) use memory::{ROOM, RequestMemory, RequestShare};
pub(super) use rate::Rate;

/// Requests of one pod at a time.
pub(super) const EACH_POD: usize = 8;

/// Bytes of an answer in one record: two of them wait for the node's credit.
const PART: usize = ROOM / 2 - channel::HEADER;

/// Maximum time without a byte of a request's body.
const SILENCE: Duration = Duration::from_secs(30);

/// Maximum time for a whole body, as an API server gives a request (`--request-timeout`), and the bytes for which it has one
/// more second: a full body needs longer on a slow link.
const WHOLE: (Duration, usize) = (Duration::from_secs(60), 16 << 10);

/// Maximum bytes that one frame of an answer counts with. An API server's are smaller; of the embedded API they are part of
/// an answer that it counts itself.
const FRAME: usize = 512 << 10;

/// Maximum time without memory for the next bytes of an answer, and the interval of attempts.
const FULL: (Duration, Duration) = (Duration::from_secs(30), Duration::from_millis(100));

/// The stream of a request. Dropping it ends the stream.
pub(super) struct PodStream {
    stream: OpenStream,
    commands: UnboundedSender<Command>,
    share: RequestShare,
}

/// The node has ended the stream, or its connection has ended.
struct Gone;

/// Carries out one request.
pub(super) async fn serve(upstream: Arc<Upstream>, request: ApiRequest, mut stream: PodStream) {
    let _open = counters::POD_REQUESTS_OPEN.enter();
    let head = request.method == "HEAD";
    let answer = ask(&*upstream, &request, &mut stream).await;
    if answer.is_ok() {
        // The API has the body.
        stream.share.release();
    }
    // The node knows of an end that it has caused itself.
    let _ = match answer {
        Ok(answer) => stream.pass_on(answer, head).await,
        Err(refusal) => {
            counters::POD_REQUESTS_REFUSED.one();
            stream.send(refusal.records(head)).await
        }
    };
    stream.sent().await;
}

/// Sends the request, and returns the API's answer with its body still to come.
async fn ask(
    upstream: &Upstream,
    request: &ApiRequest,
    stream: &mut PodStream,
) -> Result<Response<AnswerBody>, Refusal> {
    let body = if request.has_body { stream.body(body_patience).await? } else { Bytes::new() };
    stream.expects_no_more();
    let answer = upstream(head::request(request, body)?);
    let answer = match head::patience(request) {
        Some(patience) => timeout(patience, answer).await.map_err(|_| Refusal::late())?,
        None => answer.await,
    };
    answer.map_err(|why| Refusal::unavailable(format!("the bridge cannot reach the API: {why}")))
}

/// Maximum time until the next bytes of a body; `bytes` have come in the time `passed`. Without it, a byte now and then
/// would hold memory and a place of the node.
fn body_patience(bytes: usize, passed: Duration) -> Duration {
    let more = u64::try_from(bytes / WHOLE.1).unwrap_or(u64::MAX);
    SILENCE.min(WHOLE.0.saturating_add(Duration::from_secs(more)).saturating_sub(passed))
}

impl PodStream {
    pub(super) fn new(stream: OpenStream, commands: UnboundedSender<Command>, share: RequestShare) -> Self {
        Self { stream, commands, share }
    }

    /// Reads the body of the request. `patience`: maximum time until its next bytes, by those so far and the time so far.
    async fn body(&mut self, patience: impl Fn(usize, Duration) -> Duration) -> Result<Bytes, Refusal> {
        let busy = || Refusal::busy("bodies of requests of pods take the memory, try again later");
        if !self.share.hold(CREDIT) {
            return Err(busy());
        }
        let (mut records, mut body) = (Records::default(), BytesMut::new());
        let start = Instant::now();
        loop {
            while let Some(record) = records.next_record().map_err(|error| Refusal::bad(error.to_string()))? {
                match record.channel {
                    STDIN if body.len() + record.data.len() > MAX_API_BODY => return Err(Refusal::too_large()),
                    // More is on its way.
                    STDIN if !self.share.hold(body.len() + record.data.len() + CREDIT) => return Err(busy()),
                    STDIN => body.extend_from_slice(&record.data),
                    CLOSE if record.data == [STDIN] => return Ok(body.freeze()),
                    _ => return Err(Refusal::bad("the node sends a record that no request has")),
                }
            }
            let left = patience(body.len(), start.elapsed());
            // A timeout of zero takes what is there, and records may be empty.
            let next = if left.is_zero() { None } else { timeout(left, self.stream.chunks.recv()).await.ok() };
            let bytes = next.ok_or_else(Refusal::slow_body)?;
            let broken = || Refusal::bad("the body of the request broke off");
            let bytes = bytes.ok_or_else(broken)?.map_err(|_| broken())?;
            let consumed = Command::Consumed { stream: self.stream.id, bytes: bytes.len() };
            // The connection may have ended, and needs no credit then.
            let _ = self.commands.unbounded_send(consumed);
            records.push(&bytes);
        }
    }

    /// Takes no more bytes: those of a node that sends some nevertheless end the stream, and are not kept.
    fn expects_no_more(&mut self) {
        let (_, ended) = Chunks::new();
        self.stream.chunks = ended;
    }

    /// Passes an answer on as the node takes it.
    async fn pass_on(&mut self, answer: Response<AnswerBody>, head: bool) -> Result<(), Gone> {
        let (parts, mut body) = answer.into_parts();
        self.send(head::opened(&head::answer(parts.status, &parts.headers))).await?;
        let mut end = String::new();
        while let Some(frame) = if head { None } else { self.next(&mut body).await } {
            match frame {
                Ok(frame) => {
                    let Ok(data) = frame.into_data() else { continue };
                    if !self.hold(data.len().min(FRAME) + ROOM).await {
                        "answers to pods take the memory of the bridge, try again later".clone_into(&mut end);
                        break;
                    }
                    for part in data.chunks(PART) {
                        self.send(channel::records(STDOUT, part)).await?;
                    }
                }
                Err(why) => {
                    end = why.chars().take(1024).collect();
                    break;
                }
            }
        }
        self.send(channel::records(STATUS, end.as_bytes())).await
    }

    /// The next frame of an answer. As long as none comes and the node has taken all, the request holds nothing.
    async fn next(&mut self, body: &mut AnswerBody) -> Option<Result<Frame<Bytes>, String>> {
        let mut frame = std::pin::pin!(body.frame());
        tokio::select! {
            biased;
            next = frame.as_mut() => return next,
            () = self.sent() => {}
        }
        self.share.release();
        frame.await
    }

    /// Waits until there is memory for these bytes of the answer; false if that takes too long.
    async fn hold(&mut self, bytes: usize) -> bool {
        let wait = async {
            while !self.share.hold(bytes) {
                sleep(FULL.1).await;
            }
        };
        timeout(FULL.0, wait).await.is_ok()
    }

    /// Sends records, in pieces for which there is room: a node that does not read keeps a request waiting here.
    async fn send(&self, records: Vec<u8>) -> Result<(), Gone> {
        for piece in records.chunks(ROOM) {
            let bytes = u32::try_from(piece.len()).map_err(|_| Gone)?;
            self.stream.room.acquire_many(bytes).await.map_err(|_| Gone)?.forget();
            let send = Command::Send { stream: self.stream.id, data: piece.to_vec() };
            self.commands.unbounded_send(send).map_err(|_| Gone)?;
        }
        Ok(())
    }

    /// Waits until everything is in frames: an end of the stream drops what waits.
    async fn sent(&self) {
        let all = u32::try_from(ROOM).unwrap_or(u32::MAX);
        drop(self.stream.room.acquire_many(all).await);
    }
}

impl Drop for PodStream {
    fn drop(&mut self) {
        let _ = self.commands.unbounded_send(Command::EndStream { stream: self.stream.id });
    }
}

#[cfg(test)]
mod tests;
