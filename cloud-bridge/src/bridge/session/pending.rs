//! What a connection waits for: requests to the API, and messages and calls of rules.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use edge_protocol::message::{CallResult, DeviceRefusal, RenewAnswer, RuleMessage, TokenAnswer};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use crate::bridge::rules::deliver::Ended;
use crate::bridge::work_queue::{Attempt, Outcome};

/// Finished work for which the session waits.
pub(super) enum Done {
    Report(Attempt, Outcome),
    /// The renewal for a frame that arrived at this time.
    Lease(Duration, kube::Result<()>),
    Token(u64, TokenAnswer),
    Renewed(RenewAnswer),
    /// A batch of reports of devices, and the refused ones.
    Devices(u64, Vec<DeviceRefusal>),
    /// The end of the first message of the rule with this uid.
    Message(String, Ended),
    /// The result of a request of a program on the node.
    Responded(u64, CallResult),
    /// A newer connection of the node is at another bridge, so nothing more may be written for this one.
    Fenced,
    /// A permit to send a large object.
    Large(OwnedSemaphorePermit),
    /// The node's object was written again, or is refused.
    Rewritten,
    /// Sends nothing to the node.
    Quiet,
}

pub(super) type Work = FuturesUnordered<BoxFuture<'static, Done>>;

/// The write of the node's object again: one at a time. A request during one is for a later state of the object, and is
/// answered by another after it.
#[derive(Debug, Default)]
pub(super) enum Rewrite {
    #[default]
    No,
    Running,
    Again,
}

impl Rewrite {
    /// Returns whether to start a write.
    pub(super) fn request(&mut self) -> bool {
        let starts = matches!(self, Self::No);
        *self = if starts { Self::Running } else { Self::Again };
        starts
    }

    /// The write has ended. Returns whether to start another.
    pub(super) fn done(&mut self) -> bool {
        let starts = matches!(self, Self::Again);
        *self = if starts { Self::Running } else { Self::No };
        starts
    }
}

/// Messages and calls of rules.
#[derive(Default)]
pub(super) struct Rules {
    /// Messages by uid of the rule; the first one of each is in progress.
    pub(super) messages: HashMap<String, VecDeque<Waiting>>,
    pub(super) calls: HashMap<u64, oneshot::Sender<CallResult>>,
}

/// A message of the node's broker.
pub(super) struct Waiting {
    pub(super) id: u64,
    pub(super) until: Instant,
    /// `None` for the one in progress.
    pub(super) message: Option<RuleMessage>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewrites_of_one_node_do_not_overlap() {
        let mut rewrite = Rewrite::default();
        assert!(rewrite.request());
        assert!(!rewrite.request() && !rewrite.request(), "one is under way");
        assert!(rewrite.done(), "the object was changed after it had begun");
        assert!(!rewrite.done());
        assert!(rewrite.request());
    }
}
