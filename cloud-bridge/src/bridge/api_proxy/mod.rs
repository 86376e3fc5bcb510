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

use apimachinery::shares::Share;
use bytes::{Bytes, BytesMut};
use edge_protocol::channel::{self, CLOSE, Records, STATUS, STDIN, STDOUT};
use edge_protocol::message::{ApiRequest, MAX_API_BODY};
use futures::channel::mpsc::UnboundedSender;
use http::Response;
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::counters;
use super::node::{Command, OpenStream};
use head::Refusal;
use upstream::{AnswerBody, Upstream};

pub(super) use memory::{ROOM, RequestMemory};
pub(super) use rate::Rate;

/// Requests of one pod at a time.
pub(super) const EACH_POD: usize = 8;

/// Bytes of an answer in one record: two of them wait for the node's credit.
const PART: usize = ROOM / 2 - channel::HEADER;

/// Maximum time without a byte of a request's body.
const SILENCE: Duration = Duration::from_secs(30);

/// The stream of a request. Dropping it ends the stream.
pub(super) struct PodStream {
    stream: OpenStream,
    commands: UnboundedSender<Command>,
    share: Share,
}

/// The node has ended the stream, or its connection has ended.
struct Gone;

/// Carries out one request.
pub(super) async fn serve(upstream: Arc<Upstream>, request: ApiRequest, mut stream: PodStream) {
    let _open = counters::POD_REQUESTS_OPEN.enter();
    let head = request.method == "HEAD";
    // The node knows of an end that it has caused itself.
    let _ = match ask(&*upstream, &request, &mut stream).await {
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
    let body = if request.has_body { stream.body().await? } else { Bytes::new() };
    let answer = upstream(head::request(request, body)?);
    let answer = match head::patience(request) {
        Some(patience) => timeout(patience, answer).await.map_err(|_| Refusal::late())?,
        None => answer.await,
    };
    answer.map_err(|why| Refusal::unavailable(format!("the bridge cannot reach the API: {why}")))
}

impl PodStream {
    pub(super) fn new(stream: OpenStream, commands: UnboundedSender<Command>, share: Share) -> Self {
        Self { stream, commands, share }
    }

    /// Reads the body of the request.
    async fn body(&mut self) -> Result<Bytes, Refusal> {
        let (mut records, mut body) = (Records::default(), BytesMut::new());
        loop {
            while let Some(record) = records.next_record().map_err(|error| Refusal::bad(error.to_string()))? {
                match record.channel {
                    STDIN if body.len() + record.data.len() > MAX_API_BODY => return Err(Refusal::too_large()),
                    STDIN if !self.share.grow(record.data.len()) => {
                        return Err(Refusal::busy("bodies of requests of pods take the memory, try again later"));
                    }
                    STDIN => body.extend_from_slice(&record.data),
                    CLOSE if record.data == [STDIN] => return Ok(body.freeze()),
                    _ => return Err(Refusal::bad("the node sends a record that no request has")),
                }
            }
            let next = timeout(SILENCE, self.stream.chunks.recv()).await;
            let bytes = next.map_err(|_| Refusal::bad("the body of the request took too long"))?;
            let broken = || Refusal::bad("the body of the request broke off");
            let bytes = bytes.ok_or_else(broken)?.map_err(|_| broken())?;
            let consumed = Command::Consumed { stream: self.stream.id, bytes: bytes.len() };
            // The connection may have ended, and needs no credit then.
            let _ = self.commands.unbounded_send(consumed);
            records.push(&bytes);
        }
    }

    /// Passes an answer on as the node takes it.
    async fn pass_on(&self, answer: Response<AnswerBody>, head: bool) -> Result<(), Gone> {
        let (parts, mut body) = answer.into_parts();
        self.send(head::opened(&head::answer(parts.status, &parts.headers))).await?;
        let mut end = String::new();
        while let Some(frame) = if head { None } else { body.frame().await } {
            match frame {
                Ok(frame) => {
                    for part in frame.into_data().iter().flat_map(|data| data.chunks(PART)) {
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

    /// Waits until the node has credit for everything: an end of the stream drops what waits.
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
