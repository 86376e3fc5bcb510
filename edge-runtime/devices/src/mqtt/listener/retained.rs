//! The newest retained message of each topic (MQTT 3.1.1, 3.3.1.3): few, and not many bytes of them.

use std::collections::BTreeSet;
use std::rc::Rc;

use sampan_sys::vec_map::VecMap;

use super::filter::Filter;
use super::message::Body;

const MESSAGES: usize = 512;
const BYTES: usize = 256 << 10;

#[derive(Debug, Default)]
pub(super) struct Retained {
    messages: VecMap<Box<str>, (Rc<Body>, bool)>,
    bytes: usize,
}

impl Retained {
    /// Retains a message; returns whether it fits. The earlier message of its topic is removed in either case, because
    /// it is outdated. `sure`: QoS 1.
    pub(super) fn put(&mut self, body: &Rc<Body>, sure: bool) -> bool {
        self.remove(&body.topic);
        if self.messages.len() >= MESSAGES || self.bytes + body.weight() > BYTES {
            return false;
        }
        self.bytes += body.weight();
        self.messages.insert(body.topic.clone(), (Rc::clone(body), sure));
        true
    }

    /// [MQTT-3.3.1-10]
    pub(super) fn remove(&mut self, topic: &str) {
        if let Some((body, _)) = self.messages.remove(topic) {
            self.bytes -= body.weight();
        }
    }

    /// What any of these filters matches, in one pass.
    pub(super) fn matching<'a>(&'a self, filters: &'a BTreeSet<Filter>) -> impl Iterator<Item = (&'a Rc<Body>, bool)> {
        let is_wanted = |body: &Body| filters.iter().any(|filter| filter.matches(&body.topic));
        self.messages.values().filter(move |(body, _)| is_wanted(body)).map(|(body, sure)| (body, *sure))
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Held;
    use super::*;

    #[test]
    fn neither_many_nor_large_messages_fill_the_memory() {
        let (mut retained, held) = (Retained::default(), Held::default());
        let put =
            |retained: &mut Retained, topic: &str, size| retained.put(&Body::new(topic, &vec![0; size], &held), true);
        let taken = (0..1_000).filter(|n| put(&mut retained, &n.to_string(), 1)).count();
        assert_eq!(taken, MESSAGES);
        assert!(put(&mut retained, "0", 2), "one that replaces another needs no other place");
        assert!(!put(&mut retained, "0", BYTES), "too long");
        let all = BTreeSet::from([Filter::new("#").expect("a filter")]);
        assert_eq!(retained.matching(&all).count(), MESSAGES - 1, "what was there before it is no more");
        assert!(put(&mut retained, "0", 60_000) && put(&mut retained, "1", 60_000));
        (0..1_000).for_each(|n| retained.remove(&n.to_string()));
        assert_eq!((retained.bytes, held.bytes()), (0, 0));
        assert_eq!((0..9).filter(|n| put(&mut retained, &n.to_string(), 60_000)).count(), 4);
    }
}
