//! A request's body, on its way through the link as fast as that takes it.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use edge_protocol::channel::{CLOSE, STDIN, records};
use edge_protocol::message::MAX_API_BODY;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use super::refusal::Refusal;
use crate::relay::Stream;

/// Until more of the body must come, and until the link must take it.
const PROGRESS: Duration = Duration::from_secs(30);
const ROOM: Duration = Duration::from_secs(120);

/// Sends the body. Success also if the stream has ended: its answer says why.
pub(super) async fn upload(stream: &Stream, mut body: Incoming) -> Result<(), Refusal> {
    let mut sum = 0;
    loop {
        let next = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let Ok(next) = timeout(PROGRESS, next).await else { return Err(Refusal::slow_body()) };
        let Some(frame) = next else { break };
        let frame = frame.map_err(|error| Refusal::bad(&format!("the body is cut: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        sum += data.len();
        if sum > MAX_API_BODY {
            return Err(Refusal::large_body());
        }
        if data.is_empty() {
            continue;
        }
        match timeout(ROOM, stream.send(&records(STDIN, &data))).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Ok(()),
            Err(_) => return Err(Refusal::no_answer()),
        }
    }
    // An end of the stream is seen where the answer is read.
    let _ = timeout(ROOM, stream.send(&records(CLOSE, &[STDIN]))).await;
    Ok(())
}
