//! Limits of the requests of one client and of all clients: places (the API server's max-requests-inflight), and the bytes of
//! bodies that arrive and of answers that have not been sent.

use std::sync::Arc;

use super::apart::Apart;
use super::steps::Steps;
use crate::auth::Attributes;
use apimachinery::flow::Flow;
use apimachinery::shares::{Share, Shares};

/// Requests at a time, as `--max-requests-inflight` and `--max-mutating-requests-inflight` have them by default; a quarter
/// of them for one flow.
const READS: (usize, usize) = (400, 100);
const WRITES: (usize, usize) = (200, 50);
/// Watches, logs and connections to pods.
const LASTING: (usize, usize) = (4096, 400);
/// Bytes of request bodies. One may have 3 MiB.
const BODIES: (usize, usize) = (32 << 20, 4 << 20);
/// Bytes of answers, and of events that wait for their watches.
const ANSWERS: (usize, usize) = (48 << 20, 6 << 20);
/// The least that a body and an answer count for: their buffers and tasks.
pub(crate) const BODY_COST: usize = 16 << 10;
pub(crate) const ANSWER_COST: usize = 4 << 10;

/// Shares of the requests under way.
#[derive(Debug)]
pub(crate) struct Limits {
    reads: Arc<Shares>,
    writes: Arc<Shares>,
    lasting: Arc<Shares>,
    pub(crate) bodies: Arc<Shares>,
    pub(crate) answers: Arc<Shares>,
    pub(crate) steps: Arc<Steps>,
    /// The line of large writes that the disk has no room for.
    pub(crate) disk: Arc<Steps>,
    /// Limits of the work beside the thread.
    pub(crate) apart: Apart,
}

impl Default for Limits {
    fn default() -> Self {
        let shares = |(most, each)| Shares::new(most, each);
        Self {
            reads: shares(READS),
            writes: shares(WRITES),
            lasting: shares(LASTING),
            bodies: shares(BODIES),
            answers: shares(ANSWERS),
            steps: Arc::default(),
            disk: Arc::default(),
            apart: Apart::default(),
        }
    }
}

impl Limits {
    /// Takes a place for a request; `None` if all are in use.
    pub(crate) fn enter(&self, flow: &Flow, attributes: &Attributes) -> Option<Share> {
        let places = match attributes.verb.as_str() {
            _ if lasting(attributes) => &self.lasting,
            "get" | "list" | "head" => &self.reads,
            _ => &self.writes,
        };
        places.take(flow, 1)
    }
}

fn lasting(attributes: &Attributes) -> bool {
    attributes.verb == "watch"
        || matches!(attributes.path.subresource.as_str(), "attach" | "exec" | "log" | "portforward" | "proxy")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::request_info::target;
    use apimachinery::user::UserInfo;

    #[test]
    fn places_are_few_and_come_back() {
        let limits = Limits::default();
        let enter = |user: &UserInfo, method: &str, path: &str, watch| {
            limits.enter(&Flow::of(user), &Attributes::new(method, &target(path), watch, ""))
        };
        let eve = UserInfo::new("eve", ["people"]);
        let pods = "/api/v1/namespaces/a/pods";
        let all = |method: &str, watch| -> Vec<_> { std::iter::from_fn(|| enter(&eve, method, pods, watch)).collect() };
        let (reads, writes, watches) = (all("GET", false), all("POST", false), all("GET", true));
        assert_eq!((reads.len(), writes.len(), watches.len()), (READS.1, WRITES.1, LASTING.1));
        assert!(enter(&eve, "GET", "/api/v1/namespaces/a/pods/p/log", false).is_none());
        let bob = UserInfo::new("bob", ["people"]);
        assert!(["GET", "POST"].into_iter().all(|method| enter(&bob, method, pods, false).is_some()));
        assert!(enter(&UserInfo::master("admin"), "POST", pods, false).is_some());
        drop((reads, writes));
        assert!(enter(&eve, "GET", pods, false).is_some() && enter(&eve, "DELETE", pods, false).is_some());
    }
}
