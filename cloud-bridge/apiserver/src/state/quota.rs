//! Write quota of one node: a stolen node must not fill the disk or wear it out. Only for the embedded API; a real one
//! has its own limits.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::resource::Resource;
use crate::resource::status::{ApiError, ApiResult};
use crate::storage::Stored;
use apimachinery::user::UserInfo;

/// Nodes that are counted. Those beyond are let in by an administrator, too, and find the oldest places.
const NODES: usize = 16_384;

/// Bytes that come back each second, and how many may be saved up.
struct Rate {
    per_second: i64,
    most: i64,
}

/// Events are kept for an hour, so at most 8 MiB of one node are stored.
const EVENTS: Rate = Rate { per_second: 2 << 10, most: 1 << 20 };
/// A node with 110 pods that all start writes 3 MB of statuses.
const OBJECTS: Rate = Rate { per_second: 32 << 10, most: 16 << 20 };

/// Rest of one rate; negative after a write that was larger than the rest.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: i64,
    since: Instant,
}

impl Bucket {
    fn new(rate: &Rate, now: Instant) -> Self {
        Self { left: rate.most, since: now }
    }

    /// The present rest. Only whole seconds count, so that frequent calls give no more.
    fn left(&mut self, rate: &Rate, now: Instant) -> i64 {
        let seconds = now.saturating_duration_since(self.since).as_secs();
        self.since += Duration::from_secs(seconds);
        let back = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(rate.per_second);
        self.left = self.left.saturating_add(back).min(rate.most);
        self.left
    }
}

struct Node {
    events: Bucket,
    objects: Bucket,
}

/// What each node has left.
#[derive(Default)]
pub(crate) struct Quotas(Mutex<HashMap<String, Node>>);

impl Quotas {
    fn with<T>(&self, node: &str, now: Instant, event: bool, act: impl FnOnce(&mut Bucket, &Rate) -> T) -> T {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if nodes.len() >= NODES && !nodes.contains_key(node) {
            let oldest = nodes.iter().min_by_key(|(_, node)| node.objects.since.max(node.events.since));
            if let Some(name) = oldest.map(|(name, _)| name.clone()) {
                nodes.remove(&name);
            }
        }
        let fresh = || Node { events: Bucket::new(&EVENTS, now), objects: Bucket::new(&OBJECTS, now) };
        let node = nodes.entry(node.to_owned()).or_insert_with(fresh);
        if event { act(&mut node.events, &EVENTS) } else { act(&mut node.objects, &OBJECTS) }
    }

    fn admits(&self, node: &str, now: Instant, event: bool) -> bool {
        self.with(node, now, event, |bucket, rate| bucket.left(rate, now) > 0)
    }

    /// Charges a write that was already made, so it may exceed the rest: then the rest is negative for that long.
    fn took(&self, node: &str, now: Instant, event: bool, bytes: i64) {
        self.with(node, now, event, |bucket, _| bucket.left = bucket.left.saturating_sub(bytes));
    }
}

impl Quotas {
    /// Before a write in the name of a node.
    pub(crate) fn admit(&self, user: &UserInfo, resource: &Resource) -> ApiResult<()> {
        let Some(node) = user.node_name() else { return Ok(()) };
        if self.admits(node, Instant::now(), resource.rules().ttl.is_some()) {
            return Ok(());
        }
        let mut error =
            ApiError::too_many_requests(format!("node {node:?} has written more than its share; try again later"));
        error.details = serde_json::json!({"retryAfterSeconds": 10});
        Err(error)
    }

    /// After it.
    pub(crate) fn charge(&self, user: &UserInfo, resource: &Resource, stored: &Stored) {
        if let Some(node) = user.node_name() {
            let bytes = i64::try_from(stored.body.len()).unwrap_or(i64::MAX);
            self.took(node, Instant::now(), resource.rules().ttl.is_some(), bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_its_share_and_gets_it_back_slowly() {
        let (quotas, start) = (Quotas::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        quotas.took("a", start, true, EVENTS.most - 1);
        assert!(quotas.admits("a", start, true));
        quotas.took("a", start, true, 3 << 20);
        assert!(!quotas.admits("a", start, true));
        assert!(quotas.admits("a", start, false), "statuses go on when events do not");
        assert!(quotas.admits("b", start, true), "and other nodes");
        assert!(!quotas.admits("a", at(1000), true), "what was too much has to come back first");
        assert!(quotas.admits("a", at(1600), true));
        let mut written = 0;
        for second in 0..3600 {
            while quotas.admits("c", at(second), true) {
                quotas.took("c", at(second), true, 4096);
                written += 4096;
            }
        }
        assert!(written <= 9 << 20, "{written} bytes of events in an hour");
    }

    #[test]
    fn names_of_nodes_take_a_bounded_room() {
        let quotas = Quotas::default();
        for number in 0..NODES + 10 {
            assert!(quotas.admits(&number.to_string(), Instant::now(), false));
        }
        assert_eq!(quotas.0.lock().unwrap().len(), NODES);
    }
}
