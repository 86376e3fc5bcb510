//! One connected client: its user, its subscriptions, its queue.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::connect::Will;
use super::encode;
use super::filter::Filter;
use super::outbox::Outbox;
use super::rights::Rights;

/// Subscriptions of one client, filters of one packet that are looked at, and bytes of all that a client has.
pub(super) const SUBSCRIPTIONS: usize = 128;
const BYTES: usize = 8 << 10;
/// Messages of QoS 2 that the client has not released.
const UNRELEASED: usize = 256;

/// A stored [`Will`].
#[derive(Debug)]
pub(super) struct LastWill {
    pub(super) topic: Box<str>,
    pub(super) payload: Box<[u8]>,
    pub(super) sure: bool,
    pub(super) retain: bool,
}

impl From<&Will<'_>> for LastWill {
    fn from(will: &Will<'_>) -> Self {
        Self { topic: will.topic.into(), payload: will.payload.into(), sure: will.sure, retain: will.retain }
    }
}

#[derive(Debug)]
pub(super) struct Client {
    /// `None` without users.
    pub(super) user: Option<Box<str>>,
    /// Empty if it has given none.
    pub(super) id: Box<str>,
    pub(super) rights: Rc<Rights>,
    pub(super) will: Option<LastWill>,
    pub(super) out: Outbox,
    /// Reason of its disconnection. It receives nothing more.
    pub(super) cut: Option<&'static str>,
    /// Its connection has been woken for pending packets.
    pub(super) woken: bool,
    /// Whether it receives messages of the node.
    pub(super) hears_node: bool,
    subscriptions: Vec<Subscription>,
    unreleased: BTreeSet<u16>,
}

#[derive(Debug)]
struct Subscription {
    filter: Filter,
    /// QoS 1.
    sure: bool,
}

impl Client {
    pub(super) fn new(id: &str, user: Option<&str>, rights: Rc<Rights>, will: Option<LastWill>) -> Self {
        Self {
            user: user.map(Into::into),
            id: id.into(),
            rights,
            will,
            out: Outbox::default(),
            cut: None,
            woken: false,
            hears_node: false,
            subscriptions: Vec::new(),
            unreleased: BTreeSet::new(),
        }
    }

    /// The code of the answer; the subscription counts from now on, in place of one with the same filter [MQTT-3.8.4-3].
    pub(super) fn subscribe(&mut self, filter: &Filter, qos: u8) -> u8 {
        let held: usize = self.subscriptions.iter().map(|one| one.filter.len()).sum();
        let sure = qos > 0;
        if let Some(same) = self.subscriptions.iter_mut().find(|one| one.filter == *filter) {
            same.sure = sure;
        } else if self.subscriptions.len() >= SUBSCRIPTIONS
            || held + filter.len() > BYTES
            || filter.is_deep()
            || !self.rights.may_subscribe(filter)
        {
            return encode::REFUSED;
        } else {
            self.subscriptions.push(Subscription { filter: filter.clone(), sure });
        }
        u8::from(sure)
    }

    pub(super) fn unsubscribe(&mut self, filters: &BTreeSet<Filter>) {
        self.subscriptions.retain(|one| !filters.contains(&one.filter));
    }

    pub(super) fn filters(&self) -> impl Iterator<Item = &Filter> {
        self.subscriptions.iter().map(|one| &one.filter)
    }

    /// Whether it receives this topic, and if so, whether with QoS 1: the highest of its subscriptions [MQTT-3.3.5-1].
    pub(super) fn hears(&self, topic: &str) -> Option<bool> {
        let matching = self.subscriptions.iter().filter(|one| one.filter.matches(topic));
        matching.map(|one| one.sure).max()
    }

    /// Whether a message of QoS 2 with this id is new (4.3.3); `None` if the client has too many of them.
    pub(super) fn receive(&mut self, id: u16) -> Option<bool> {
        let new = self.unreleased.insert(id);
        (self.unreleased.len() <= UNRELEASED).then_some(new)
    }

    pub(super) fn released(&mut self, id: u16) {
        self.unreleased.remove(&id);
    }

    /// Closes the client for this reason; it receives nothing more.
    pub(super) fn cut(&mut self, why: &'static str) {
        self.cut.get_or_insert(why);
        self.out.clear();
        self.subscriptions = Vec::new();
        self.hears_node = false;
    }
}
