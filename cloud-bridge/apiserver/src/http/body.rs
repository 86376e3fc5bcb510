//! The body of a response: bytes at hand, or a stream (a watch, a log).

use std::any::Any;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http_body::{Body, Frame, SizeHint};

/// Maximum piece of available bytes: HTTP/2 accepts a whole frame, however small the window of its stream is.
const PIECE: usize = 16 << 10;

/// Why a streamed body broke off.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BodyError(pub String);

type BoxStream = Pin<Box<dyn Stream<Item = Result<Bytes, BodyError>> + Send>>;

enum Kind {
    Full(Bytes),
    /// A stream, with the unread rest of its last part.
    Stream(BoxStream, Bytes),
}

/// A response body.
pub struct ApiBody {
    kind: Kind,
    /// Whether this stream is a list, which ends, and not a watch. Its size hint is then not empty.
    ends: bool,
    /// Given back with the stream.
    _held: Option<Box<dyn Any + Send>>,
}

/// Bytes, and a guard that is dropped with the last of them.
struct Held<G>(Bytes, G);

impl<G> AsRef<[u8]> for Held<G> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Bytes that keep `guard` until the last part of them is dropped, wherever they wait to be sent.
pub(crate) fn held<G: Send + 'static>(bytes: Bytes, guard: G) -> Bytes {
    Bytes::from_owner(Held(bytes, guard))
}

impl ApiBody {
    /// All at once.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self { kind: Kind::Full(bytes.into()), ends: true, _held: None }
    }

    /// A body sent as the stream yields it.
    pub fn stream(stream: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static) -> Self {
        Self { kind: Kind::Stream(Box::pin(stream), Bytes::new()), ends: false, _held: None }
    }

    /// A list, sent as the client reads it: not empty, and with an end.
    pub(super) fn list(stream: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static) -> Self {
        Self { ends: true, ..Self::stream(stream) }
    }

    /// Returns the same body, which holds `guard` until it is sent.
    pub(super) fn holding<G: Send + 'static>(self, guard: G) -> Self {
        match self.kind {
            Kind::Full(bytes) if bytes.is_empty() => Self::full(bytes),
            Kind::Full(bytes) => Self::full(held(bytes, guard)),
            stream @ Kind::Stream(..) => {
                Self { kind: stream, ends: self.ends, _held: Some(Box::new((self._held, guard))) }
            }
        }
    }

    /// The same, with each part of a stream counted by `take` until it is sent. Without a share the stream ends with an
    /// error.
    pub(super) fn counted<G, T>(self, take: T) -> Self
    where
        G: Send + 'static,
        T: Fn(usize) -> Option<G> + Send + 'static,
    {
        let Kind::Stream(stream, _) = self.kind else { return self };
        let unread = || BodyError("the client leaves too much unread".to_owned());
        let counted = stream.map(move |part| {
            let part = part?;
            let guard = take(part.len()).ok_or_else(unread)?;
            Ok(held(part, guard))
        });
        Self { kind: Kind::Stream(Box::pin(counted), Bytes::new()), ends: self.ends, _held: self._held }
    }

    /// How many bytes are at hand.
    pub(super) fn bytes(&self) -> usize {
        match &self.kind {
            Kind::Full(bytes) => bytes.len(),
            Kind::Stream(..) => 0,
        }
    }

    /// The bytes at hand, or the body that is a stream.
    pub(super) fn into_full(self) -> Result<Bytes, Self> {
        match self.kind {
            Kind::Full(bytes) => Ok(bytes),
            stream @ Kind::Stream(..) => Err(Self { kind: stream, ..self }),
        }
    }
}

impl Body for ApiBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let bytes = match &mut self.kind {
            Kind::Full(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Kind::Full(bytes) => bytes,
            Kind::Stream(stream, rest) => {
                if rest.is_empty() {
                    match ready!(stream.as_mut().poll_next(cx)) {
                        Some(Ok(part)) => *rest = part,
                        end => return Poll::Ready(end.map(|part| part.map(Frame::data))),
                    }
                }
                rest
            }
        };
        let piece = bytes.split_to(bytes.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.kind, Kind::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Stream(..) => {
                let mut hint = SizeHint::default();
                hint.set_lower(u64::from(self.ends));
                hint
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn large_parts_of_a_stream_go_in_pieces_that_count_until_each_is_sent() {
        let guard = Arc::new(());
        let counted = Arc::clone(&guard);
        let parts = futures::stream::iter([vec![b'x'; PIECE + 1], vec![b'y'; 3]].map(|part| Ok(part.into())));
        let mut body = ApiBody::stream(parts).counted(move |_| Some(Arc::clone(&counted)));
        let mut lengths = Vec::new();
        for guards in [3, 3, 3] {
            let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
            lengths.push(piece.len());
            assert_eq!(Arc::strong_count(&guard), guards, "{lengths:?}");
        }
        assert_eq!(lengths, [PIECE, 1, 3]);
        assert!(body.frame().await.is_none());
    }

    #[test]
    fn stream_that_ends_says_so_whatever_is_done_with_it() {
        let parts = || futures::stream::iter([Ok(Bytes::from("x"))]);
        let done = |body: ApiBody| body.into_full().err().unwrap().counted(|_| Some(())).holding(()).size_hint();
        let hints = [done(ApiBody::list(parts())), done(ApiBody::stream(parts()))];
        assert_eq!(hints.map(|hint| (hint.lower(), hint.exact())), [(1, None), (0, None)]);
    }

    #[tokio::test]
    async fn guard_stays_until_the_last_piece_is_dropped() {
        let (guard, text) = (Arc::new(()), vec![b'x'; PIECE * 2 + 1]);
        let mut body = ApiBody::full(text.clone()).holding(Arc::clone(&guard));
        let mut pieces = Vec::new();
        while let Some(frame) = body.frame().await {
            pieces.push(frame.unwrap().into_data().unwrap());
        }
        drop(body);
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [PIECE, PIECE, 1]);
        assert_eq!((pieces.concat(), Arc::strong_count(&guard)), (text, 2));
        pieces.truncate(1);
        assert_eq!(Arc::strong_count(&guard), 2);
        pieces.clear();
        assert_eq!(Arc::strong_count(&guard), 1);
    }
}
