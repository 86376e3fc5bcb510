//! The body of a response: bytes at hand, or a stream (a watch, a log).

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use http_body::{Body, Frame, SizeHint};

/// Why a streamed body broke off.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BodyError(pub String);

type BoxStream = Pin<Box<dyn Stream<Item = Result<Bytes, BodyError>> + Send>>;

enum Kind {
    Full(Option<Bytes>),
    Stream(BoxStream),
}

/// A response body.
pub struct ApiBody(Kind);

impl ApiBody {
    /// All at once.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self(Kind::Full((!bytes.is_empty()).then_some(bytes)))
    }

    /// As it comes.
    pub fn stream(stream: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static) -> Self {
        Self(Kind::Stream(Box::pin(stream)))
    }
}

impl ApiBody {
    /// The bytes at hand, or the stream.
    pub(super) fn into_full(self) -> Result<Bytes, BoxStream> {
        match self.0 {
            Kind::Full(bytes) => Ok(bytes.unwrap_or_default()),
            Kind::Stream(stream) => Err(stream),
        }
    }
}

impl Body for ApiBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Kind::Full(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Kind::Stream(stream) => stream.as_mut().poll_next(cx).map(|item| item.map(|r| r.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, Kind::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Kind::Stream(_) => SizeHint::default(),
        }
    }
}
