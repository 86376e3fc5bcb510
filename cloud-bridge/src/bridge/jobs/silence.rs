//! How long a node that works on an order has been unchanged, in both its answer and its connection. Pure. Lost when
//! the bridge restarts: the wait for a node is then a little longer, never shorter.

use std::collections::HashMap;
use std::time::Duration;

use super::status::{Entry, Status};

/// Silence of the nodes of one job.
#[derive(Debug, Default)]
pub(super) struct Silence {
    nodes: HashMap<Box<str>, Seen>,
}

#[derive(Debug)]
struct Seen {
    entry: Entry,
    connected: bool,
    /// Any monotonic clock.
    since: Duration,
}

impl Silence {
    /// Updates the entries of all nodes under way.
    pub(super) fn look(&mut self, status: &Status, connected: impl Fn(&str) -> bool, now: Duration) {
        let mut before = std::mem::take(&mut self.nodes);
        for entry in status.nodes.iter().filter(|entry| entry.is_under_way()) {
            let connected = connected(&entry.node_name);
            let seen = before.remove(&entry.node_name).filter(|seen| {
                // While a node is silent, a changed answer does not count.
                seen.connected == connected && (seen.entry == *entry || !connected)
            });
            let seen = seen.unwrap_or_else(|| Seen { entry: entry.clone(), connected, since: now });
            self.nodes.insert(entry.node_name.clone(), seen);
        }
    }

    /// Zero for a node that is not under way.
    pub(super) fn of(&self, node: &str, now: Duration) -> Duration {
        self.nodes.get(node).map_or(Duration::ZERO, |seen| now.saturating_sub(seen.since))
    }
}

#[cfg(test)]
mod tests {
    use edge_protocol::message::OrderPhase;

    use super::*;

    #[test]
    fn it_counts_from_the_last_word_or_change_of_the_link() {
        let s = Duration::from_secs;
        let mut silence = Silence::default();
        let nodes = vec![Entry::new("a", OrderPhase::InProgress, ""), Entry::new("b", OrderPhase::Pending, "")];
        let mut status = Status { nodes, ..Status::default() };
        silence.look(&status, |_| true, s(10));
        silence.look(&status, |_| true, s(20));
        assert_eq!((silence.of("a", s(25)), silence.of("b", s(25))), (s(15), s(0)));
        status.nodes[0].reason = "pulling".into();
        silence.look(&status, |_| true, s(30));
        assert_eq!(silence.of("a", s(31)), s(1));
        silence.look(&status, |_| false, s(40));
        status.nodes[0].phase = OrderPhase::Unknown;
        silence.look(&status, |_| false, s(50));
        assert_eq!(silence.of("a", s(60)), s(20));
        status.nodes[0].phase = OrderPhase::Successful;
        silence.look(&status, |_| true, s(70));
        assert!(silence.nodes.is_empty());
    }
}
