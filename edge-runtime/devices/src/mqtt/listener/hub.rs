//! Reacts to the messages of clients and of the node: a state machine without I/O and without a clock. Each message
//! goes to every subscriber that has room for it; no client waits for another.

mod route;

use std::collections::BTreeSet;
use std::rc::Rc;

use sampan_sys::gather::Gather;
use sampan_sys::vec_map::VecMap;

use super::super::news::News;
use super::super::packet::Broken;
use super::client::{Client, LastWill};
use super::connect::{Connect, Will};
use super::encode::{self, Ack};
use super::filter::Filter;
use super::message::Held;
use super::packet::Packet;
use super::retained::Retained;
use super::rights::Rights;
use crate::twins::Listening;

/// A connection.
pub(super) type Token = u64;

const CLIENTS: usize = 64;
/// Clients of a user that may not do everything: one cannot take the places of all.
const OF_ONE_USER: usize = 8;
/// Bytes of an id, of a will.
const CLIENT_ID: usize = 256;
const WILL: usize = 8 << 10;

const TAKEN_OVER: &str = "another one has its client id";
const USER_CHANGED: &str = "its user is gone, or has other rights";

/// Return codes of CONNACK (3.2.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Version = 1,
    ClientId = 2,
    Full = 3,
    Login = 4,
    NotAllowed = 5,
}

/// Identity of a client, as far as it is proven.
#[derive(Clone, Debug)]
pub(super) struct Who {
    /// `None` without users.
    pub(super) user: Option<String>,
    pub(super) rights: Rc<Rights>,
}

#[derive(Debug)]
pub(super) struct Hub {
    clients: VecMap<Token, Client>,
    last: Token,
    retained: Retained,
    held: Held,
    woken: Vec<Token>,
    /// But for the clients that are there.
    counted: Listening,
    /// Topics that the node receives: those of devices, and those of rules.
    hears: Vec<Filter>,
    wanted: Vec<Filter>,
    /// Topics that only the node may publish.
    says: Vec<Filter>,
}

impl Hub {
    pub(super) fn new(hears: &[&str], says: &[&str]) -> Self {
        let filters = |texts: &[&str]| texts.iter().filter_map(|text| Filter::new(text)).collect();
        Self {
            clients: VecMap::new(),
            last: 0,
            retained: Retained::default(),
            held: Held::default(),
            woken: Vec::new(),
            counted: Listening::default(),
            hears: filters(hears),
            wanted: Vec::new(),
            says: filters(says),
        }
    }

    /// A client, whose answer waits for it.
    ///
    /// # Errors
    /// The code of the answer.
    pub(super) fn connect(&mut self, connect: &Connect<'_>, who: Who) -> Result<Token, Refusal> {
        let id = connect.client_id;
        // [MQTT-3.1.3-8], [MQTT-3.1.3-9]
        if (id.is_empty() && !connect.clean) || id.len() > CLIENT_ID {
            return Err(Refusal::ClientId);
        }
        if connect.will.as_ref().is_some_and(|Will { topic, payload, .. }| topic.len() + payload.len() > WILL) {
            return Err(Refusal::Full);
        }
        let user = who.user.as_deref();
        // [MQTT-3.1.4-2]. The id of another user's client is another one.
        let is_same = |client: &Client| !id.is_empty() && *client.id == *id && client.user.as_deref() == user;
        let same = self.connected().find(|(_, client)| is_same(client)).map(|(token, _)| token);
        if same.is_none() {
            let of_user = self.connected().filter(|(_, client)| client.user.as_deref() == user).count();
            if self.connected().count() >= CLIENTS || (of_user >= OF_ONE_USER && !who.rights.are_all()) {
                return Err(Refusal::Full);
            }
        }
        if let Some(same) = same {
            self.cut(same, TAKEN_OVER);
        }
        self.last += 1;
        let mut client = Client::new(id, user, who.rights, connect.will.as_ref().map(LastWill::from));
        client.out.answer(&encode::WELCOME);
        self.clients.insert(self.last, client);
        Ok(self.last)
    }

    /// Those that are not to end.
    fn connected(&self) -> impl Iterator<Item = (Token, &Client)> {
        self.clients.iter().filter(|(_, client)| client.cut.is_none()).map(|(token, client)| (*token, client))
    }

    /// Whether this packet could be news for the node.
    pub(super) fn is_for_node(&self, packet: &Packet<'_>) -> bool {
        match packet {
            Packet::Publish(publish) => self.node_hears(publish.topic),
            Packet::Subscribe(..) => true,
            _ => false,
        }
    }

    /// Processes a packet of a client. [`gone`](Self::gone) handles DISCONNECT.
    ///
    /// # Errors
    /// It is to end.
    pub(super) fn packet(&mut self, token: Token, packet: Packet<'_>) -> Result<Option<News>, Broken> {
        let Some(client) = self.clients.get_mut(&token).filter(|client| client.cut.is_none()) else { return Ok(None) };
        match packet {
            Packet::Publish(publish) => return self.published(token, &publish),
            Packet::Subscribe(id, filters) => return Ok(self.subscribed(token, id, &filters)),
            Packet::PubAck(id) => client.out.acked(id),
            Packet::PubRel(id) => {
                client.released(id);
                // Whether it is known or not: [MQTT-4.3.3-2].
                client.out.answer(&encode::ack(Ack::Pubcomp, id));
            }
            Packet::Unsubscribe(id, filters) => {
                client.unsubscribe(&filters.iter().map(|(filter, _)| filter).into_set());
                let hears_node = client.filters().any(|filter| self.says.iter().any(|said| said.meets(filter)));
                client.hears_node = hears_node;
                client.out.answer(&encode::ack(Ack::Unsuback, id));
            }
            Packet::PingReq => client.out.answer(&encode::PINGRESP),
            Packet::Connect(_) | Packet::OtherVersion | Packet::Disconnect => {}
        }
        Ok(None)
    }

    fn node_hears(&self, topic: &str) -> bool {
        self.hears.iter().chain(&self.wanted).any(|filter| filter.matches(topic))
    }

    /// Sets the topics that the node receives beside those of devices.
    pub(super) fn hear(&mut self, wanted: &BTreeSet<String>) {
        self.wanted = wanted.iter().filter_map(|text| Filter::new(text)).collect();
    }

    fn cut(&mut self, token: Token, why: &'static str) {
        if let Some(client) = self.clients.get_mut(&token) {
            self.counted.cut += u64::from(client.cut.is_none());
            client.cut(why);
            if !client.woken {
                client.woken = true;
                self.woken.push(token);
            }
        }
    }

    /// Whether any client is connected as a user.
    pub(super) fn has_users(&self) -> bool {
        self.connected().any(|(_, client)| client.user.is_some())
    }

    /// Ends all whose user may not do the same any more.
    pub(super) fn users(&mut self, still: impl Fn(&str, &Rights) -> bool) {
        let is_past = |client: &Client| client.user.as_deref().is_some_and(|user| !still(user, &client.rights));
        let past: Vec<Token> = self.connected().filter(|(_, client)| is_past(client)).map(|(token, _)| token).collect();
        past.into_iter().for_each(|token| self.cut(token, USER_CHANGED));
    }

    /// Removes a connection; `orderly`: by DISCONNECT, so that its will is dropped [MQTT-3.14.4-3].
    pub(super) fn gone(&mut self, token: Token, orderly: bool) -> Option<News> {
        let client = self.clients.remove(&token)?;
        let will = client.will.filter(|will| !orderly && self.may(&client.rights, &will.topic))?;
        self.route(&will.topic, &will.payload, will.sure, will.retain);
        self.news(&will.topic, Some(&will.payload))
    }

    /// Why this client is to end, if it is.
    pub(super) fn is_cut(&self, token: Token) -> Option<&'static str> {
        self.clients.get(&token).map_or(Some("it is unknown"), |client| client.cut)
    }

    /// Whether to stop reading from it until it has read its own messages.
    pub(super) fn is_full(&self, token: Token) -> bool {
        self.clients.get(&token).is_some_and(|client| client.out.is_full())
    }

    /// Adds the client's next messages, up to about `about` bytes.
    pub(super) fn write(&mut self, token: Token, to: &mut Vec<u8>, about: usize) {
        if let Some(client) = self.clients.get_mut(&token) {
            client.out.write(to, about);
        }
    }

    /// Clients with news since the last call.
    pub(super) fn woken(&mut self) -> Vec<Token> {
        for token in &self.woken {
            if let Some(client) = self.clients.get_mut(token) {
                client.woken = false;
            }
        }
        std::mem::take(&mut self.woken)
    }

    /// Room for messages of the node: that of the fastest subscriber.
    pub(super) fn room(&self) -> Option<usize> {
        self.connected().filter(|(_, client)| client.hears_node).map(|(_, client)| client.out.room()).max()
    }

    /// Bytes of all messages that wait or are retained.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.bytes()
    }

    /// One was refused.
    pub(super) const fn refused(&mut self) {
        self.counted.refused += 1;
    }

    /// How it goes.
    pub(super) fn counters(&self) -> Listening {
        Listening { clients: self.connected().count() as u64, ..self.counted }
    }
}
