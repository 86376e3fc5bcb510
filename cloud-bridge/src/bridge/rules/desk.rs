//! Interface for the listener for rules: finds the rule for a path, and executes requests on a node.

use std::sync::Arc;
use std::time::Duration;

use edge_protocol::message::{Call, CallFailure, CallResult};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::route::Route;
use super::watch::RuleWatch;
use super::write::now;
use crate::bridge::Bridge;
use crate::bridge::node::{Asked, Command};
use crate::bridge::shared::Shared;
use crate::bridge::world::Round;

/// Timeout for a node's answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Keeps the rules up to date while a task holds it.
pub struct Desk {
    shared: Arc<Shared>,
    watch: Arc<RuleWatch>,
}

impl Bridge {
    /// Starts to read the rules.
    pub fn rules(&self) -> Desk {
        let round = Round::default();
        let watch = self.shared.rules.watch.get_or(round, || RuleWatch::begin(&self.shared.clients, round));
        Desk { shared: Arc::clone(&self.shared), watch }
    }
}

impl Desk {
    /// The rule for the path after node and namespace, and the rest of the path.
    ///
    /// # Errors
    /// Rules have not been read yet.
    #[expect(clippy::result_unit_err, reason = "there is one reason")]
    pub fn at_path(&self, namespace: &str, path: &str) -> Result<Option<(Arc<Route>, String)>, ()> {
        self.watch.at_path(namespace, path)
    }

    /// Address (`IP:PORT`) at which the node's bridge accepts such requests, if that is another bridge and has one.
    pub fn elsewhere(&self, node: &str) -> Option<String> {
        let named = self.shared.node_access.rules_at(node);
        self.shared.elsewhere(node, named, self.shared.settings.rules_place.as_deref())
    }

    /// Executes the request on the node at most once, and counts the result.
    pub async fn call(&self, node: &str, route: &Route, call: Call) -> CallResult {
        let result = self.ask(node, call).await;
        let outcome = match &result {
            CallResult::Failed { why, .. } => Err(format!("{} node {node}: {why}", now())),
            // The caller handles the answer of a server on the node.
            CallResult::Published {} | CallResult::Http { .. } => Ok(()),
        };
        self.watch.count(route, outcome);
        result
    }

    async fn ask(&self, node: &str, call: Call) -> CallResult {
        let failed = |failure, why: &str| CallResult::Failed { failure, why: why.to_owned() };
        let (answer, answered) = oneshot::channel();
        let asked = Command::Ask(Box::new(Asked { call, answer }));
        let link = self.shared.nodes.get(node).and_then(|node| node.link());
        if link.is_none_or(|link| link.commands.unbounded_send(asked).is_err()) {
            return failed(CallFailure::Unavailable, "the node is not connected to this bridge");
        }
        match timeout(PATIENCE, answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => failed(CallFailure::Broken, "the connection of the node ended before it answered"),
            Err(_) => failed(CallFailure::Timeout, "the node does not answer in time"),
        }
    }
}
