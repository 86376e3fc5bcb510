//! A request's body, on its way through the link as fast as that takes it.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use edge_protocol::channel::{CLOSE, STDIN, records};
use edge_protocol::message::MAX_API_BODY;
use hyper::body::{Body, Incoming};
use tokio::time::{Instant, timeout};

use super::refusal::Refusal;
use crate::relay::Stream;

/// Until more of the body must come, all waiting for it together, and until the link must take it.
const PROGRESS: Duration = Duration::from_secs(30);
const WAITING: Duration = Duration::from_secs(120);
const ROOM: Duration = Duration::from_secs(120);

/// Time that a pod has left to send its body. One byte now and then would hold a stream of the link for years.
#[derive(Debug)]
struct Patience(Duration);

impl Patience {
    fn limit(&self) -> Duration {
        PROGRESS.min(self.0)
    }

    fn spend(&mut self, waited: Duration) {
        self.0 = self.0.saturating_sub(waited);
    }
}

/// Sends the body. Success also if the stream has ended: its answer says why.
pub(super) async fn upload(stream: &Stream, mut body: Incoming) -> Result<(), Refusal> {
    let (mut sum, mut patience) = (0, Patience(WAITING));
    loop {
        let next = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let since = Instant::now();
        let Ok(next) = timeout(patience.limit(), next).await else { return Err(Refusal::slow_body()) };
        patience.spend(since.elapsed());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_that_trickles_comes_to_an_end() {
        let mut patience = Patience(WAITING);
        patience.spend(Duration::from_millis(1));
        assert_eq!(patience.limit(), PROGRESS);
        let mut waits = 0;
        while !patience.limit().is_zero() {
            patience.spend(patience.limit());
            waits += 1;
        }
        assert_eq!(waits, 4);
    }
}
