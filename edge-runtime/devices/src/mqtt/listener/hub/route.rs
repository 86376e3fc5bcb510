//! Routes a message to the clients that hear it, and to the node.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::{Hub, Token};
use crate::mqtt::listener::client::SUBSCRIPTIONS;
use crate::mqtt::listener::encode::{self, Ack};
use crate::mqtt::listener::filter::Filter;
use crate::mqtt::listener::message::Body;
use crate::mqtt::listener::outbox::Put;
use crate::mqtt::listener::packet::{Filters, Publish, Qos};
use crate::mqtt::listener::rights::Rights;
use crate::mqtt::news::News;
use crate::mqtt::packet::Broken;

/// Bytes of a topic.
const TOPIC: usize = 1_024;
/// Maximum bytes of all waiting or retained messages. Beyond it, the client with the most waiting bytes loses them,
/// except a share that each may have.
const BYTES: usize = 2 << 20;
const SHARE: usize = 16 << 10;
/// Trees of topics with a `$` that clients speak in (4.7.2).
const TREES: [&str; 2] = ["$hw/", "$ke/"];

const TOO_SLOW: &str = "it does not read what it has to hear";

impl Hub {
    pub(super) fn published(&mut self, token: Token, publish: &Publish<'_>) -> Result<Option<News>, Broken> {
        let Some(client) = self.clients.get_mut(&token) else { return Ok(None) };
        let (sure, new) = match publish.qos {
            Qos::Zero => (false, true),
            Qos::One(id) => {
                client.out.answer(&encode::ack(Ack::Puback, id));
                (true, true)
            }
            Qos::Two(id) => {
                let Some(new) = client.receive(id) else {
                    return Err(Broken("too many messages of QoS 2 are not released".to_owned()));
                };
                client.out.answer(&encode::ack(Ack::Pubrec, id));
                (true, new)
            }
        };
        // MQTT has no other answer to a forbidden message [MQTT-3.3.5-2].
        let rights = Rc::clone(&client.rights);
        if !new || !self.may(&rights, publish.topic) {
            return Ok(None);
        }
        if let Some(payload) = publish.payload {
            self.route(publish.topic, payload, sure, publish.retain);
        }
        Ok(self.news(publish.topic, publish.payload))
    }

    pub(super) fn may(&self, rights: &Rights, topic: &str) -> bool {
        topic.len() <= TOPIC
            && (!topic.starts_with('$') || TREES.iter().any(|tree| topic.starts_with(tree)))
            && !self.says.iter().any(|filter| filter.matches(topic))
            && rights.may_publish(topic)
    }

    pub(super) fn news(&self, topic: &str, payload: Option<&[u8]>) -> Option<News> {
        self.node_hears(topic).then(|| News::Message {
            topic: topic.to_owned(),
            payload: payload.map(<[u8]>::to_vec),
            retained: false,
        })
    }

    pub(super) fn subscribed(&mut self, token: Token, id: u16, filters: &Filters<'_>) -> Option<News> {
        let client = self.clients.get_mut(&token)?;
        let mut taken = BTreeSet::new();
        let mut codes = Vec::new();
        for (number, (filter, qos)) in filters.iter().enumerate() {
            let code = if number < SUBSCRIPTIONS { client.subscribe(&filter, qos) } else { encode::REFUSED };
            codes.push(code);
            if code != encode::REFUSED {
                taken.insert(filter);
            }
        }
        client.out.answer(&encode::suback(id, &codes));
        // Each retained message once, though several of these filters match it [MQTT-3.3.1-6].
        for (body, sure) in self.retained.matching(&taken) {
            let sure = sure && client.hears(&body.topic) == Some(true);
            if client.out.put(body, sure, true) != Put::Taken {
                self.counted.dropped += 1;
            }
        }
        taken.retain(|filter| self.says.iter().any(|said| said.meets(filter)));
        let heard: Vec<Filter> = taken.into_iter().collect();
        client.hears_node |= !heard.is_empty();
        (!heard.is_empty()).then_some(News::Subscribed(heard))
    }

    /// A message of the node.
    pub(in crate::mqtt::listener) fn publish(&mut self, topic: &str, payload: &[u8]) {
        self.route(topic, payload, true, false);
    }

    pub(super) fn route(&mut self, topic: &str, payload: &[u8], sure: bool, retain: bool) {
        let mut body = None;
        if retain && payload.is_empty() {
            // [MQTT-3.3.1-10], [MQTT-3.3.1-11]
            self.retained.remove(topic);
        } else if retain {
            let body = body.insert(Body::new(topic, payload, &self.held));
            self.counted.dropped += u64::from(!self.retained.put(body, sure));
        }
        let mut slow = Vec::new();
        for (token, client) in self.clients.iter_mut() {
            let Some(granted) = client.hears(topic) else { continue };
            let body = body.get_or_insert_with(|| Body::new(topic, payload, &self.held));
            match client.out.put(body, sure && granted, false) {
                Put::Taken => {}
                Put::Dropped => self.counted.dropped += 1,
                Put::TooSlow => slow.push(*token),
            }
            if !client.woken {
                client.woken = true;
                self.woken.push(*token);
            }
        }
        drop(body);
        slow.into_iter().for_each(|token| self.cut(token, TOO_SLOW));
        self.relieve();
    }

    /// Drops messages of the client with the most waiting bytes while there are too many.
    fn relieve(&mut self) {
        while self.held.bytes() > BYTES {
            let most = self.clients.iter_mut().max_by_key(|(_, client)| client.out.bytes());
            let Some((token, client)) = most.filter(|(_, client)| client.out.bytes() > SHARE) else { return };
            let dropped = client.out.drop_unsure();
            self.counted.dropped += u64::try_from(dropped).unwrap_or(0);
            if dropped == 0 {
                let token = *token;
                self.cut(token, TOO_SLOW);
            }
        }
    }

    /// Topic and payload of what is retained of these topics.
    pub(in crate::mqtt::listener) fn retained(&self, topics: &[String]) -> Vec<(String, Vec<u8>)> {
        let filters = topics.iter().filter_map(|topic| Filter::new(topic));
        let found = |filter: Filter| {
            let filter = BTreeSet::from([filter]);
            let bodies =
                self.retained.matching(&filter).map(|(body, _)| (body.topic.to_string(), body.payload.to_vec()));
            bodies.collect::<Vec<_>>()
        };
        filters.flat_map(found).collect()
    }
}
