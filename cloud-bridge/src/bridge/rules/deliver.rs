//! Delivers one message of a node, until its target accepts it or it is no longer needed. The caller selects the next
//! message.

use std::sync::Arc;
use std::time::Duration;

use edge_protocol::message::{MAX_PAYLOAD, RuleMessage};
use edge_protocol::topic::{covers, is_topic};
use sampan_log::printable::printable;
use tokio::time::Instant;

use super::post::Posted;
use super::route::{Route, Source, Target};
use super::state::RuleState;
use super::write::now;
use crate::bridge::pauses::Pauses;

/// Pause after a failed attempt, doubled up to the second value.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Reason why the message is not delivered.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::bridge) enum Ended {
    Delivered,
    /// It was counted at its rule.
    Failed,
    /// The message has no rule of this node.
    Unwanted(&'static str),
}

/// Delivers the message. After `until` the sender no longer waits.
pub(in crate::bridge) async fn deliver(
    rules: Arc<RuleState>,
    node: String,
    message: RuleMessage,
    until: Instant,
) -> Ended {
    let mut pauses = Pauses::new(AGAIN);
    loop {
        // Read for each attempt, because rules change.
        let (watch, route) = rules.route(&message.rule).await;
        let url = match route.as_deref().map(|route| wanted(route, &node, &message)) {
            None => return Ended::Unwanted("there is no such rule"),
            Some(Err(why)) => return Ended::Unwanted(why),
            Some(Ok(url)) => url.clone(),
        };
        let Some(route) = route else { return Ended::Unwanted("there is no such rule") };
        let failed = |why: &str| format!("{} node {node}, topic {}: {why}", now(), printable(&message.topic));
        let why = match rules.poster.post(&url, &node, &message).await {
            Posted::Delivered => {
                watch.count(&route, Ok(()));
                return Ended::Delivered;
            }
            Posted::Refused(why) => {
                watch.count(&route, Err(failed(&why)));
                return Ended::Failed;
            }
            Posted::Trouble(why) => why,
        };
        log::debug!("rule {}/{}: {}", route.name.0, route.name.1, printable(failed(&why)));
        if until.saturating_duration_since(Instant::now()) <= pauses.length() {
            watch.count(&route, Err(failed(&format!("{why}; its time is over"))));
            return Ended::Failed;
        }
        drop(watch);
        pauses.wait().await;
    }
}

/// Target of the message, if its rule belongs to this node and its topic matches.
fn wanted<'a>(route: &'a Route, node: &str, message: &RuleMessage) -> Result<&'a http::Uri, &'static str> {
    match (&route.source, &route.target) {
        (Source::Topic { node: of, filter }, Target::Url(url)) if **of == *node => {
            if !is_topic(&message.topic) || !covers(filter, &message.topic) {
                return Err("its rule does not want this topic");
            }
            if message.payload.len() > MAX_PAYLOAD {
                return Err("it is too long");
            }
            Ok(url)
        }
        _ => Err("its rule is not one of this node"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_speaks_for_its_own_rules_and_their_topics() {
        let source = Source::Topic { node: "n".into(), filter: "ns/a/+".into() };
        let (name, target) = (("ns".into(), "r".into()), Target::Url("http://a/".parse().unwrap()));
        let route = Route { name, uid: "u".into(), source, target, priority: 0, created: 0 };
        let message =
            |topic: &str, size| RuleMessage { topic: topic.into(), payload: vec![0; size], ..RuleMessage::default() };
        assert!(wanted(&route, "n", &message("ns/a/b", MAX_PAYLOAD)).is_ok());
        assert!(wanted(&route, "m", &message("ns/a/b", 1)).is_err(), "another's");
        assert!(wanted(&route, "n", &message("ns/b", 1)).is_err());
        assert!(wanted(&route, "n", &message("ns/a/+", 1)).is_err());
        assert!(wanted(&route, "n", &message("ns/a/b", MAX_PAYLOAD + 1)).is_err());
        let other = Route { source: Source::Path("/a".into()), ..route };
        assert!(wanted(&other, "n", &message("ns/a/b", 1)).is_err());
    }
}
