//! The body of a request while it arrives: its size, its client's share of memory, and how long it may take.

use std::pin::pin;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::resource::status::{ApiError, ApiResult};
use apimachinery::shares::Share;

/// Total time for a body to arrive, and maximum time without any byte.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(15));

/// Reads a body of `most` bytes at the most, which are counted in `share` as they come.
///
/// # Errors
/// 413 for a body that is too large, 429 when the share cannot grow, and 400 for one that breaks off or comes too slowly.
pub(super) async fn read<B>(body: B, most: usize, share: &mut Share) -> ApiResult<Bytes>
where
    B: http_body::Body,
    B::Error: std::fmt::Display,
{
    read_within(PATIENCE, body, most, share).await
}

async fn read_within<B>(
    (patience, silence): (Duration, Duration),
    body: B,
    most: usize,
    share: &mut Share,
) -> ApiResult<Bytes>
where
    B: http_body::Body,
    B::Error: std::fmt::Display,
{
    if body.size_hint().lower() > most as u64 {
        return Err(ApiError::too_large(most));
    }
    let late = || ApiError::bad_request("the body of the request took too long");
    let whole = async {
        let (mut body, mut bytes) = (pin!(body), BytesMut::new());
        while let Some(frame) = timeout(silence, body.frame()).await.map_err(|_| late())? {
            let frame = frame.map_err(|e| ApiError::bad_request(format!("error reading the body: {e}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len().saturating_add(data.remaining()) > most {
                return Err(ApiError::too_large(most));
            }
            if !share.grow(data.remaining()) {
                return Err(ApiError::busy());
            }
            bytes.put(data);
        }
        Ok(bytes.freeze())
    };
    timeout(patience, whole).await.unwrap_or_else(|_| Err(late()))
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};

    use super::*;
    use apimachinery::flow::Flow;
    use apimachinery::shares::Shares;
    use apimachinery::user::UserInfo;

    fn share(most: usize) -> Share {
        Shares::new(4 * most, most).take(&Flow::of(&UserInfo::new("eve", [""; 0])), 0).unwrap()
    }

    async fn code(
        body: StreamBody<impl futures::Stream<Item = Result<Frame<Bytes>, String>>>,
        share: &mut Share,
    ) -> u16 {
        let patience = (Duration::from_millis(400), Duration::from_millis(200));
        read_within(patience, body, 100, share).await.map_or_else(|error| error.code, |_| 200)
    }

    #[tokio::test]
    async fn body_ends_at_its_limits() {
        assert_eq!(read(Full::new(Bytes::from("x")), 1, &mut share(9)).await.unwrap(), "x");
        assert_eq!(read(Full::new(Bytes::from("xx")), 1, &mut share(9)).await.unwrap_err().code, 413);
        let part = || Ok(Frame::data(Bytes::from(vec![b'x'; 40])));
        let parts = |count| futures::stream::iter((0..count).map(move |_| part()));
        assert_eq!(code(StreamBody::new(parts(2)), &mut share(400)).await, 200);
        assert_eq!(code(StreamBody::new(parts(3)), &mut share(400)).await, 413);
        let shares = Shares::new(4000, 50);
        let eve = Flow::of(&UserInfo::new("eve", [""; 0]));
        let _other = shares.take(&eve, 1).unwrap();
        assert_eq!(code(StreamBody::new(parts(2)), &mut shares.take(&eve, 1).unwrap()).await, 429);
        let silent = parts(1).chain(futures::stream::pending());
        assert_eq!(code(StreamBody::new(silent), &mut share(400)).await, 400);
        let slow = futures::stream::repeat_with(|| Frame::data(Bytes::new())).then(|frame| async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok(frame)
        });
        assert_eq!(code(StreamBody::new(slow), &mut share(400)).await, 400);
    }
}
