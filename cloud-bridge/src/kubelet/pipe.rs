//! Bytes between two upgraded connections.

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::time::timeout;

/// Copies in both directions, in pieces of 8 KiB that wait for their reader, until one direction has ended and the other one has
/// had `ending`: a kubelet's streams end as a whole.
pub(super) async fn join(one: impl AsyncRead + AsyncWrite, two: impl AsyncRead + AsyncWrite, ending: Duration) {
    let ((from_one, to_one), (from_two, to_two)) = (split(one), split(two));
    let up = pin!(pass(from_one, to_two));
    let down = pin!(pass(from_two, to_one));
    // A direction that does not end is dropped.
    let _ = match select(up, down).await {
        Either::Left(((), down)) => timeout(ending, down).await,
        Either::Right(((), up)) => timeout(ending, up).await,
    };
}

/// Copies until one of the two ends, and tells the other.
async fn pass(from: impl AsyncRead, to: impl AsyncWrite) {
    let mut from = pin!(from);
    let mut to = pin!(to);
    // How a connection broke makes no difference here: both ends see that it did.
    let _ = copy(&mut from, &mut to).await;
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn bytes_pass_both_ways_until_one_side_ends() {
        let ((mut client, one), (two, mut server)) = (duplex(64), duplex(64));
        let joined = tokio::spawn(join(one, two, LONG));
        let mut read = [0; 4];
        client.write_all(b"ping").await.unwrap();
        server.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"ping");
        server.write_all(b"pong").await.unwrap();
        drop(server);
        client.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"pong");
        assert_eq!(client.read(&mut read).await.unwrap(), 0, "the end is passed on");
        drop(client);
        timeout(LONG, joined).await.expect("both have ended").unwrap();
    }

    #[tokio::test]
    async fn side_that_never_ends_is_dropped() {
        let ((client, one), (two, mut server)) = (duplex(64), duplex(64));
        let joined = tokio::spawn(join(one, two, Duration::from_millis(10)));
        drop(client);
        assert_eq!(server.read(&mut [0; 4]).await.unwrap(), 0);
        // The server keeps its side open.
        timeout(LONG, joined).await.expect("it is dropped").unwrap();
        assert!(server.write_all(&[0; 128]).await.is_err());
    }
}
