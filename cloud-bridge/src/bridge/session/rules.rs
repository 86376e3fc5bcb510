//! Messages of a node's broker, in order for each rule and independent between rules; answers to programs on the node;
//! and requests of rules to the node.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use edge_protocol::message::{CallFailure, CallResult, RuleMessage};
use futures::FutureExt;
use sampan_log::printable::printable;
use tokio::time::Instant;

use super::Connection;
use super::pending::{Done, Waiting};
use crate::bridge::node::Asked;
use crate::bridge::rules::deliver::{Ended, deliver};

/// Maximum time for which a message is retried, whatever the node asks for.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);

impl Connection {
    pub(super) fn message(&mut self, id: u64, left_ms: u64, message: serde_json::Value) {
        let Ok(message) = serde_json::from_value::<RuleMessage>(message) else {
            // From a damaged store or a hostile node: it will never be valid.
            log::debug!("node {}: row {id} of its messages is none", self.node.name);
            return self.session.message_done(id);
        };
        let until = Instant::now() + Duration::from_millis(left_ms).min(LONGEST);
        let rule = message.rule.clone();
        let queue = self.rules.messages.entry(rule.clone()).or_default();
        queue.push_back(Waiting { id, until, message: Some(message) });
        if queue.len() == 1 {
            self.deliver(rule);
        }
    }

    /// Starts the delivery of a rule's first message.
    fn deliver(&mut self, rule: String) {
        let Some(first) = self.rules.messages.get_mut(&rule).and_then(VecDeque::front_mut) else {
            self.rules.messages.remove(&rule);
            return;
        };
        let Some(message) = first.message.take() else { return };
        let delivered = deliver(Arc::clone(&self.shared.rules), self.node.name.clone(), message, first.until);
        self.work.push(delivered.map(move |ended| Done::Message(rule, ended)).boxed());
    }

    pub(super) fn delivered(&mut self, rule: String, ended: &Ended) {
        if let Ended::Unwanted(why) = ended {
            let words = printable(format_args!("rule {rule}: {why}")).to_string();
            match self.rejections.tell(&rule, why, self.now()) {
                Some(quiet) => log::warn!("node {}: a message for {words} (and {quiet} more)", self.node.name),
                None => log::debug!("node {}: a message for {words}", self.node.name),
            }
        }
        if let Some(done) = self.rules.messages.get_mut(&rule).and_then(VecDeque::pop_front) {
            self.session.message_done(done.id);
        }
        self.deliver(rule);
    }

    pub(super) fn responded(&mut self, id: u64, result: CallResult) {
        let text = |result| serde_json::to_value(result).unwrap_or_default();
        if !self.session.respond(id, text(result)) {
            let why = "it was done, but the answer is too long for a node that reads so slowly".to_owned();
            self.session.respond(id, text(CallResult::Failed { failure: CallFailure::Broken, why }));
        }
    }

    pub(super) fn ask(&mut self, Asked { call, answer }: Asked) {
        let given_up: Vec<u64> =
            self.rules.calls.iter().filter(|(_, answer)| answer.is_closed()).map(|(id, _)| *id).collect();
        for id in given_up {
            self.rules.calls.remove(&id);
            self.session.forget_call(id);
        }
        if answer.is_closed() {
            return;
        }
        let call = serde_json::to_value(call).unwrap_or_default();
        let why = match self.session.call(call) {
            Some(id) => return drop(self.rules.calls.insert(id, answer)),
            None if self.session.takes_rules() => "the node has too much to do",
            None => "the node has no devices in its configuration, or is older than rules",
        };
        // The receiver may no longer be waiting.
        let _ = answer.send(CallResult::Failed { failure: CallFailure::Unavailable, why: why.to_owned() });
    }

    pub(super) fn answered(&mut self, id: u64, answer: serde_json::Value) {
        let Some(waiting) = self.rules.calls.remove(&id) else { return };
        let failed = |error: serde_json::Error| CallResult::Failed {
            failure: CallFailure::Broken,
            why: format!("the node's answer is none: {error}"),
        };
        let _ = waiting.send(serde_json::from_value(answer).unwrap_or_else(failed));
    }
}
