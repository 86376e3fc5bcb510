//! An answer's body: whole, from the cache, through the link, or nothing until the link is back.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use edge_protocol::channel::{STATUS, STDOUT};
use hyper::body::{Body, Bytes, Frame, SizeHint};

use super::keep::{Again, Keeping};
use super::pace::Busy;
use crate::cache::Answer;
use crate::pods::UnderWay;
use crate::relay::Stream;

pub(super) enum Content {
    Whole(Option<Bytes>),
    Kept(Kept),
    Flow(Box<Flow>),
    Silence(Silence),
}

/// Bytes that are copied of a kept body at once.
const PIECE: usize = 16 << 10;

/// A body from the cache. Only the piece that is sent is copied.
pub(super) struct Kept {
    pub(super) answer: Rc<Answer>,
    /// Token of its page.
    pub(super) page: String,
    /// Bytes that were sent.
    pub(super) sent: usize,
    pub(super) _under_way: Rc<UnderWay>,
}

/// A body that comes through the link.
pub(super) struct Flow {
    pub(super) stream: Stream,
    /// Its end is no error: the client watches again.
    pub(super) is_watch: bool,
    pub(super) keeping: Option<Keeping>,
    pub(super) _again: Option<Again>,
    pub(super) _under_way: Rc<UnderWay>,
}

/// A watch without events.
pub(super) struct Silence {
    pub(super) end: Pin<Box<dyn Future<Output = ()>>>,
    pub(super) _under_way: Rc<UnderWay>,
}

/// A body of a connection.
pub(super) struct Answered {
    content: Content,
    _busy: Busy,
}

/// The body is not complete: the connection is cut.
#[derive(Debug)]
pub(super) struct Cut(String);

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer is cut: {}", self.0)
    }
}

impl std::error::Error for Cut {}

impl Answered {
    pub(super) const fn new(content: Content, busy: Busy) -> Self {
        Self { content, _busy: busy }
    }
}

impl Kept {
    fn rest(&self) -> &[u8] {
        let page = self.answer.page(&self.page);
        page.and_then(|page| page.body.get(self.sent..)).unwrap_or_default()
    }

    fn next(&mut self) -> Option<Bytes> {
        let rest = self.rest();
        let piece = rest.get(..PIECE).unwrap_or(rest);
        let piece = (!piece.is_empty()).then(|| Bytes::copy_from_slice(piece))?;
        self.sent += piece.len();
        Some(piece)
    }
}

impl Flow {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        loop {
            let record = match self.stream.poll_record(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(record) => record,
            };
            let why = match record {
                Ok(record) if record.channel == STDOUT && record.data.is_empty() => continue,
                Ok(record) if record.channel == STDOUT => {
                    if let Some(keeping) = &mut self.keeping {
                        keeping.push(&record.data);
                    }
                    return Poll::Ready(Some(Ok(Frame::data(Bytes::from(record.data)))));
                }
                Ok(record) if record.channel == STATUS && record.data.is_empty() => {
                    if let Some(keeping) = self.keeping.take() {
                        keeping.complete();
                    }
                    return Poll::Ready(None);
                }
                Ok(record) if record.channel == STATUS => String::from_utf8_lossy(&record.data).into_owned(),
                Ok(_) => continue,
                Err(why) => why,
            };
            return Poll::Ready(if self.is_watch { None } else { Some(Err(Cut(why))) });
        }
    }
}

impl Body for Answered {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match &mut self.get_mut().content {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Kept(kept) => Poll::Ready(kept.next().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Flow(flow) => flow.poll(context),
            Content::Silence(silence) => silence.end.as_mut().poll(context).map(|()| None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_none(),
            Content::Kept(kept) => kept.rest().is_empty(),
            Content::Flow(_) | Content::Silence(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(Some(bytes)) => SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
            Content::Whole(None) => SizeHint::with_exact(0),
            Content::Kept(kept) => SizeHint::with_exact(u64::try_from(kept.rest().len()).unwrap_or(u64::MAX)),
            Content::Flow(_) | Content::Silence(_) => SizeHint::default(),
        }
    }
}
