//! Frames of streams, as messages of either direction.

use crate::frame::{self, Message};
use crate::message::{ApiRequest, StreamId, StreamRequest, ToCloud, ToEdge};
use crate::wire::Content;

/// A stream frame to send; each direction's enum has the last three.
#[derive(Debug)]
pub(crate) enum StreamFrame {
    Open { stream: StreamId, request: StreamRequest, credit: u64 },
    OpenApi { stream: StreamId, request: ApiRequest, credit: u64 },
    Data { stream: StreamId, data: Vec<u8> },
    Credit { stream: StreamId, bytes: u64 },
    End { stream: StreamId, error: Option<String> },
}

impl StreamFrame {
    /// Content of a frame; `raw`: bytes in frames of their own.
    pub(crate) fn content<T: Message + From<Self>>(self, raw: bool) -> Content {
        match self {
            Self::Data { stream, data } if raw => Content::Data { stream, data },
            other => Content::Text(frame::encode(&T::from(other))),
        }
    }
}

impl From<StreamFrame> for ToEdge {
    fn from(frame: StreamFrame) -> Self {
        match frame {
            StreamFrame::Open { stream, request, credit } => Self::StreamOpen { stream, request, credit },
            StreamFrame::Data { stream, data } => Self::StreamData { stream, data },
            StreamFrame::Credit { stream, bytes } => Self::StreamCredit { stream, bytes },
            StreamFrame::End { stream, error } => Self::StreamEnd { stream, error },
            StreamFrame::OpenApi { .. } => unreachable!("only the edge sends requests to the API"),
        }
    }
}

impl From<StreamFrame> for ToCloud {
    fn from(frame: StreamFrame) -> Self {
        match frame {
            StreamFrame::Data { stream, data } => Self::StreamData { stream, data },
            StreamFrame::Credit { stream, bytes } => Self::StreamCredit { stream, bytes },
            StreamFrame::End { stream, error } => Self::StreamEnd { stream, error },
            StreamFrame::OpenApi { stream, request, credit } => Self::ApiOpen { stream, request, credit },
            StreamFrame::Open { .. } => unreachable!("only the bridge opens such streams"),
        }
    }
}
