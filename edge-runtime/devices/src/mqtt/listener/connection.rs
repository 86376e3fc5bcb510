//! One connection of a client, from its first byte to its end. It waits for its own socket and for a place in the
//! node's queue, and delays no other connection.

mod bytes;
mod end;
mod talk;

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{sleep, timeout};

use self::bytes::fill;
use self::end::End;
use self::talk::talk;
use super::encode;
use super::frame::Decoder;
use super::hub::{Hub, Refusal, Token};
use super::login::PENANCE;
use super::packet::Packet;
use super::shared::Shared;

/// Time for a client to identify itself (3.1.4).
const GREETING: Duration = Duration::from_secs(10);
/// Time for a refused client to read the reason.
const FAREWELL: Duration = Duration::from_secs(1);

/// Serves one client until it ends. `place`: where it waits for its CONNECT.
pub(super) async fn serve(mut stream: TcpStream, place: u64, shared: Rc<Shared>) {
    // Small packets, and each is waited for.
    let _ = stream.set_nodelay(true);
    let (mut read, mut write) = stream.split();
    let mut decoder = Decoder::default();
    let greeted = timeout(GREETING, greet(&mut read, &mut decoder, &shared, place)).await;
    let end = match greeted.unwrap_or_else(|_| Err(End::Sent("it does not say CONNECT".to_owned()))) {
        Ok((token, keep_alive)) => {
            let end = talk(&mut read, &mut write, decoder, &shared, token, keep_alive).await;
            let will = shared.gone(token, matches!(end, End::Orderly));
            if let Some(will) = will {
                // Fails only when the node's loop has ended.
                let _ = shared.news.send(will).await;
            }
            end
        }
        Err(End::Refused(why)) => {
            shared.with(Hub::refused);
            refuse(&mut read, &mut write, why).await;
            End::Refused(why)
        }
        Err(end) => end,
    };
    shared.arrived(place);
    if !matches!(end, End::Orderly) {
        log::debug!("a client of the listener is gone: {end}");
    }
}

/// Until it is a client.
async fn greet(
    read: &mut ReadHalf<'_>,
    decoder: &mut Decoder,
    shared: &Shared,
    place: u64,
) -> Result<(Token, u16), End> {
    loop {
        let Some((packet, size)) = decoder.peek()? else {
            fill(read, decoder).await?;
            continue;
        };
        let connect = match packet {
            Packet::Connect(connect) => connect,
            _ => return Err(End::Refused(Refusal::Version)),
        };
        let users = shared.logins.users().await.map_err(End::Refused)?;
        let who = shared.logins.who(users.as_ref(), connect.user, connect.password);
        if matches!(who, Err(Refusal::Login)) {
            sleep(PENANCE).await;
        }
        let token = shared.with(|hub| {
            if let Some(users) = &users {
                hub.users(|user, rights| users.still(user, rights));
            }
            hub.connect(&connect, who?)
        });
        let token = token.map_err(End::Refused)?;
        let keep_alive = connect.keep_alive;
        decoder.take(size);
        shared.arrived(place);
        return Ok((token, keep_alive));
    }
}

/// Sends the reason and gives the client a moment to read it: closing a socket with unread bytes loses what was sent
/// (RFC 9293, 3.10.4).
async fn refuse(read: &mut ReadHalf<'_>, write: &mut WriteHalf<'_>, why: Refusal) {
    let farewell = async {
        write.write_all(&encode::connack(why as u8)).await?;
        write.shutdown().await?;
        loop {
            fill(read, &mut Decoder::default()).await?;
        }
    };
    let _: Result<io::Result<()>, _> = timeout(FAREWELL, farewell).await;
}
