//! Server-sent events: the whole board first, in parts, then changes. The number of streams is limited, and a stream
//! ends when its reader falls behind or loses access.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http_body::Frame;
use tokio::sync::broadcast::Receiver;
use tokio::time::Instant;

/// Maximum number of streams, or of requests in a line, in total and of one user.
const MOST: (usize, usize) = (64, 8);
/// Interval of keep-alive events; before each, the access of the reader is checked.
pub(super) const TICK: Duration = Duration::from_secs(10);

/// Users with streams, or with requests in a line.
#[derive(Debug, Default)]
pub(super) struct Seats(Mutex<HashMap<String, usize>>);

/// A place for a stream or a request, released when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    user: String,
}

impl Seats {
    fn taken(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if there are too many.
    pub(super) fn take(self: &Arc<Self>, user: &str) -> Option<Seat> {
        let mut taken = self.taken();
        let of_user = taken.get(user).copied().unwrap_or_default();
        if taken.values().sum::<usize>() >= MOST.0 || of_user >= MOST.1 {
            return None;
        }
        taken.insert(user.to_owned(), of_user + 1);
        Some(Seat { seats: Arc::clone(self), user: user.to_owned() })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        if let Some(count) = taken.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.user);
            }
        }
    }
}

/// An event of the stream. The text is one line.
pub(super) fn event(name: &str, text: &str) -> Bytes {
    format!("event: {name}\ndata: {text}\n\n").into()
}

/// Content of a stream after the first events.
pub(super) struct News {
    pub(super) news: Receiver<Bytes>,
    /// Encodes events.
    pub(super) shape: fn(&Bytes) -> Bytes,
}

/// The body of a stream. `first`: the first events, encoded. A reader that falls behind is disconnected, and reconnects
/// for the whole board, because queued changes cost memory. `holds` checks the access before each keep-alive event.
pub(super) fn body<F>(
    first: impl Stream<Item = Bytes> + Send,
    News { news, shape }: News,
    seat: Seat,
    tick: Duration,
    holds: impl Fn() -> F + Send + 'static,
) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send
where
    F: Future<Output = bool> + Send,
{
    let begun = (news, Instant::now(), seat, holds);
    let news = futures::stream::unfold(begun, move |(mut news, mut ticked, seat, holds)| async move {
        let bytes = tokio::select! {
            biased;
            () = tokio::time::sleep_until(ticked + tick) => {
                ticked = Instant::now();
                if !holds().await {
                    return None;
                }
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
                event("tick", &now.to_string())
            }
            // The reader is too slow, or the page ends.
            next = news.recv() => next.ok()?,
        };
        Some((shape(&bytes), (news, ticked, seat, holds)))
    });
    first.chain(news).map(|bytes| Ok(Frame::data(bytes)))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::sync::broadcast;

    use super::*;

    fn text(frame: Option<Result<Frame<Bytes>, Infallible>>) -> Option<String> {
        let bytes = frame?.unwrap().into_data().unwrap();
        Some(String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn there_are_so_many_seats_in_all_and_for_one() {
        let seats = Arc::new(Seats::default());
        let mut held: Vec<Seat> = (0..MOST.1).map(|_| seats.take("a").unwrap()).collect();
        assert!(seats.take("a").is_none(), "too many of one user");
        for number in MOST.1..MOST.0 {
            held.push(seats.take(&number.to_string()).unwrap());
        }
        assert!(seats.take("z").is_none(), "too many in all");
        held.pop();
        assert!(seats.take("z").is_some());
        held.clear();
        assert!(seats.taken().is_empty());
    }

    fn first() -> impl Stream<Item = Bytes> + Send {
        futures::stream::iter([event("part", "0"), event("all", "1")])
    }

    fn plain(news: Receiver<Bytes>) -> News {
        News { news, shape: Bytes::clone }
    }

    const NEVER: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn everything_comes_first_then_news() {
        let seats = Arc::new(Seats::default());
        let (sender, news) = broadcast::channel(2);
        let mut body = pin!(body(first(), plain(news), seats.take("a").unwrap(), NEVER, || async { true }));
        sender.send(event("rows", "2")).unwrap();
        assert_eq!(text(body.next().await).unwrap(), "event: part\ndata: 0\n\n");
        assert_eq!(text(body.next().await).unwrap(), "event: all\ndata: 1\n\n");
        assert_eq!(text(body.next().await).unwrap(), "event: rows\ndata: 2\n\n");
        drop(sender);
        assert!(body.next().await.is_none(), "the page ends");
    }

    #[tokio::test]
    async fn a_quiet_stream_gives_signs_of_life() {
        let (_sender, news) = broadcast::channel::<Bytes>(2);
        let seat = Arc::new(Seats::default()).take("a").unwrap();
        let mut body = pin!(body(first(), plain(news), seat, Duration::from_millis(1), || async { true }));
        assert!(body.next().await.is_some() && body.next().await.is_some());
        for _ in 0..2 {
            assert!(text(body.next().await).unwrap().starts_with("event: tick\ndata: "));
        }
    }

    #[tokio::test]
    async fn a_slow_reader_is_sent_away() {
        let seats = Arc::new(Seats::default());
        let (sender, news) = broadcast::channel(2);
        let mut body = Box::pin(body(first(), plain(news), seats.take("a").unwrap(), NEVER, || async { true }));
        assert!(body.next().await.is_some() && body.next().await.is_some());
        for number in 0..4 {
            sender.send(event("rows", &number.to_string())).unwrap();
        }
        assert!(body.next().await.is_none());
        drop(body);
        assert!(seats.taken().is_empty(), "its place is free");
    }

    #[tokio::test]
    async fn who_may_look_no_more_sees_no_more() {
        let (_sender, news) = broadcast::channel::<Bytes>(2);
        let seat = Arc::new(Seats::default()).take("a").unwrap();
        let mut body = pin!(body(first(), plain(news), seat, Duration::from_millis(1), || async { false }));
        assert!(body.next().await.is_some() && body.next().await.is_some());
        assert!(body.next().await.is_none());
    }
}
