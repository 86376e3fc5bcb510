//! Answers with parts that their client still has to read, and the time when it last read a part.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::Instant;

/// The answers of one connection.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    state: Mutex<State>,
    begun: Notify,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Answers by number: the time when the last part was taken or requested.
    answers: BTreeMap<u64, Instant>,
}

impl Unsent {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a body until its last byte is written to the socket. A body that may stay empty, such as a watch, is not
    /// followed, because its end is unknown.
    pub(super) fn follow<B: Body>(self: &Arc<Self>, body: B) -> Followed<B> {
        let answer = (body.size_hint().lower() > 0).then(|| {
            let mut state = self.state();
            state.next += 1;
            let number = state.next;
            state.answers.insert(number, Instant::now());
            self.begun.notify_one();
            Arc::new(Answer { of: Arc::clone(self), number })
        });
        Followed { body: Some(body), answer }
    }

    /// Returns when the client has read nothing of an answer for `patience`.
    pub(super) async fn stalled(&self, patience: Duration) {
        loop {
            let oldest = self.state().answers.values().min().copied();
            match oldest {
                Some(since) if since.elapsed() >= patience => return,
                Some(since) => tokio::time::sleep_until(since + patience).await,
                None => self.begun.notified().await,
            }
        }
    }
}

#[derive(Debug)]
struct Answer {
    of: Arc<Unsent>,
    number: u64,
}

impl Answer {
    fn moves(&self) {
        if let Some(since) = self.of.state().answers.get_mut(&self.number) {
            *since = Instant::now();
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.of.state().answers.remove(&self.number);
    }
}

/// Part of a body; it is dropped when it has been written.
struct Part(Bytes, Arc<Answer>);

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.1.moves();
    }
}

/// See [`Unsent::follow`].
pub(super) struct Followed<B> {
    body: Option<B>,
    answer: Option<Arc<Answer>>,
}

impl<B> Followed<B> {
    /// A missing body.
    pub(super) fn empty() -> Self {
        Self { body: None, answer: None }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Followed<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Self { body, answer } = &mut *self;
        let Some(body) = body else { return Poll::Ready(None) };
        let Some(answer) = answer else { return Pin::new(body).poll_frame(cx) };
        // The client has room for more: a delay is then not the client's fault.
        answer.moves();
        let followed = |bytes| Bytes::from_owner(Part(bytes, Arc::clone(answer)));
        Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(followed))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(200);

    /// A body with one part, and then nothing yet.
    struct Endless(u64, Option<Bytes>);

    impl Body for Endless {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            self.1.take().map_or(Poll::Pending, |part| Poll::Ready(Some(Ok(Frame::data(part)))))
        }

        fn size_hint(&self) -> SizeHint {
            let mut hint = SizeHint::new();
            hint.set_lower(self.0);
            hint
        }
    }

    #[tokio::test]
    async fn stream_with_an_end_stalls_unless_it_is_asked_for_more() {
        let unsent = Arc::new(Unsent::default());
        let stalled = || tokio::time::timeout(PATIENCE * 3, unsent.stalled(PATIENCE));
        let watch = unsent.follow(Endless(0, Some("x".into())));
        assert!(stalled().await.is_err(), "it has no end");
        let mut list = unsent.follow(Endless(1, Some("x".into())));
        assert!(stalled().await.is_ok(), "nobody takes it");
        drop(list.frame().await);
        let asking = async {
            for _ in 0..40 {
                assert!(futures::poll!(list.frame()).is_pending());
                tokio::time::sleep(PATIENCE / 4).await;
            }
        };
        tokio::select! {
            biased;
            () = asking => panic!("it is awaited for too long"),
            stalled = stalled() => assert!(stalled.is_err(), "what comes next is awaited"),
        }
        drop(watch);
    }

    #[tokio::test]
    async fn unread_answer_stalls_and_a_moving_one_does_not() {
        let unsent = Arc::new(Unsent::default());
        let stalled = || tokio::time::timeout(PATIENCE * 3, unsent.stalled(PATIENCE));
        assert!(stalled().await.is_err(), "there is no answer");
        let mut body = unsent.follow(Full::new(Bytes::from_static(b"xy")));
        assert!(stalled().await.is_ok());
        let part = body.frame().await.unwrap().unwrap().into_data().unwrap();
        drop(body);
        assert!(stalled().await.is_ok(), "it waits in a buffer");
        let rest = part.slice(1..);
        drop(part);
        assert!(!unsent.state().answers.is_empty());
        drop(rest);
        assert!(unsent.state().answers.is_empty() && stalled().await.is_err());
    }
}
