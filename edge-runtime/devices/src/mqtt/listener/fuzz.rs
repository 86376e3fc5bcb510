//! The listener without sockets: feeds it the bytes of some clients, split in any way, and checks its answers.

use std::rc::Rc;

use super::frame::{Decoder, MAX_PACKET};
use super::hub::{Hub, Token, Who};
use super::packet::Packet;
use super::users::Users;
use crate::twins::{FILTERS, SAID};

/// Connections at once.
const CONNECTIONS: usize = 4;
const USERS: &str = "a secret device=default/t1\nb secret all\n";

#[derive(Default)]
struct Connection {
    decoder: Decoder,
    token: Option<Token>,
}

/// The first bytes of each piece name its connection and its length; the other bytes arrive on that connection.
pub fn bytes(mut data: &[u8]) {
    let mut hub = Hub::new(&FILTERS, &SAID);
    let (users, _) = Users::read(USERS);
    let mut connections: [Connection; CONNECTIONS] = Default::default();
    let mut out = Vec::new();
    while let Some(([whose, length], rest)) = data.split_first_chunk() {
        let (piece, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        data = rest;
        let Some(connection) = connections.get_mut(usize::from(*whose) % CONNECTIONS) else { continue };
        connection.decoder.feed(piece);
        if !connection.goes_on(&mut hub, &users, whose & 0x80 != 0) {
            if let Some(token) = connection.token {
                hub.gone(token, false);
            }
            *connection = Connection::default();
        }
        for token in hub.woken() {
            out.clear();
            hub.write(token, &mut out, MAX_PACKET);
        }
    }
}

impl Connection {
    fn goes_on(&mut self, hub: &mut Hub, users: &Users, with_users: bool) -> bool {
        loop {
            let (packet, size) = match self.decoder.peek() {
                Ok(Some(next)) => next,
                Ok(None) => return true,
                Err(_) => return false,
            };
            match (packet, self.token) {
                (Packet::Connect(connect), _) => {
                    let rights = match (with_users, connect.user) {
                        (false, _) => Some(Rc::new(super::rights::Rights::all())),
                        (true, user) => users.rights(user.unwrap_or(""), connect.password.unwrap_or_default()),
                    };
                    let Some(rights) = rights else { return false };
                    let user = connect.user.filter(|_| with_users).map(ToOwned::to_owned);
                    let Ok(token) = hub.connect(&connect, Who { user, rights }) else { return false };
                    self.token = Some(token);
                }
                (Packet::OtherVersion, _) | (_, None) => return false,
                (Packet::Disconnect, Some(token)) => {
                    hub.gone(token, true);
                    self.token = None;
                    return false;
                }
                (packet, Some(token)) => {
                    if hub.is_cut(token).is_some() || hub.packet(token, packet).is_err() {
                        return false;
                    }
                }
            }
            self.decoder.take(size);
        }
    }
}
