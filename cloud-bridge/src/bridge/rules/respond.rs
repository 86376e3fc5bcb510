//! One request of a program on a node, sent to the target of its rule at most once; the node gets the result.

use std::sync::Arc;
use std::time::Duration;

use edge_protocol::message::{CallFailure, CallResult, MAX_BODY, RuleRequest};
use tokio::time::timeout;

use super::route::{Route, Source, Target};
use super::state::RuleState;
use super::write::now;

/// Timeout until a bridge that has just started has read the rules.
const PATIENCE: Duration = Duration::from_secs(5);

/// `request`: a [`RuleRequest`], if the node follows the protocol.
pub(in crate::bridge) async fn respond(rules: Arc<RuleState>, node: String, request: serde_json::Value) -> CallResult {
    let request: RuleRequest = match serde_json::from_value(request) {
        Ok(request) => request,
        Err(error) => return failed(CallFailure::Refused, &format!("that is no request: {error}")),
    };
    let Ok((watch, route)) = timeout(PATIENCE, rules.route(&request.rule)).await else {
        return failed(CallFailure::Unavailable, "the bridge has not read the rules yet");
    };
    let Some(route) = route else { return failed(CallFailure::Refused, "there is no such rule") };
    let url = match wanted(&route, &node, &request) {
        Ok(url) => url,
        Err(why) => return failed(CallFailure::Refused, why),
    };
    let result = rules.poster.ask(url, &node, request.body).await;
    let counted = |why: &str| Err(format!("{} node {node}: {why}", now()));
    watch.count(
        &route,
        match &result {
            CallResult::Http { status: 200..300, .. } => Ok(()),
            CallResult::Http { status, .. } => counted(&format!("the target answers {status}")),
            CallResult::Failed { why, .. } => counted(why),
            CallResult::Published {} => counted("nothing was published"),
        },
    );
    result
}

/// Target of the request, if its rule belongs to this node.
fn wanted<'a>(route: &'a Route, node: &str, request: &RuleRequest) -> Result<&'a http::Uri, &'static str> {
    match (&route.source, &route.target) {
        (Source::Url { node: of, .. }, Target::Url(_)) if **of == *node && request.body.len() > MAX_BODY => {
            Err("the request is too long")
        }
        (Source::Url { node: of, .. }, Target::Url(url)) if **of == *node => Ok(url),
        _ => Err("its rule is not one of this node"),
    }
}

fn failed(failure: CallFailure, why: &str) -> CallResult {
    CallResult::Failed { failure, why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_asks_by_its_own_rules() {
        let source = Source::Url { node: "n".into(), url: "http://b".into() };
        let (name, target) = (("ns".into(), "r".into()), Target::Url("http://a/".parse().unwrap()));
        let route = Route { name, uid: "u".into(), source, target, priority: 0, created: 0 };
        let request = |size| RuleRequest { rule: "u".into(), body: vec![0; size] };
        assert!(wanted(&route, "n", &request(MAX_BODY)).is_ok());
        assert!(wanted(&route, "m", &request(1)).is_err(), "another's");
        assert!(wanted(&route, "n", &request(MAX_BODY + 1)).is_err());
        let other = Route { source: Source::Topic { node: "n".into(), filter: "a".into() }, ..route };
        assert!(wanted(&other, "n", &request(1)).is_err());
    }
}
