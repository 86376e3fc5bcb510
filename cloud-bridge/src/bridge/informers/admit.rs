//! Checks whether a node may read an object that is watched in the name of another node. It asks the API in the node's
//! own name, only for the metadata: that needs the same right as the object, at a fraction of the cost.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use edge_protocol::message::ObjectKey;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::DynamicObject;
use kube::{Api, Client};
use log::Level;
use tokio::sync::Semaphore;

use super::answer::{Admission, Answer};
use crate::bridge::clients::Clients;
use crate::bridge::resource::of_kind;
use crate::bridge::told::kinds::Kind;

/// Pause before the API is asked again for a node that was refused, doubled up to the second value. The API server
/// learns of a pod's new node by its own watch, and refuses until then.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Maximum number of concurrent questions: all nodes of a fleet may name the same object.
const TURNS: usize = 32;

/// Questions under way, each only once.
pub(super) struct Admissions {
    asked: HashSet<(String, ObjectKey)>,
    turns: Arc<Semaphore>,
}

impl Default for Admissions {
    fn default() -> Self {
        Self { asked: HashSet::new(), turns: Arc::new(Semaphore::new(TURNS)) }
    }
}

impl Admissions {
    /// Returns the question, unless it is under way.
    pub(super) fn ask(&mut self, clients: &Clients, node: &str, key: &ObjectKey) -> Option<BoxFuture<'static, Answer>> {
        let first = self.asked.insert((node.to_owned(), key.clone()));
        first.then(|| self.question(clients, node.to_owned(), key.clone(), Duration::ZERO))
    }

    /// Asks the same question again.
    pub(super) fn ask_again(&self, clients: &Clients, refused: Admission) -> BoxFuture<'static, Answer> {
        let Admission { node, key, pause, .. } = refused;
        self.question(clients, node, key, (pause * 2).clamp(AGAIN.0, AGAIN.1))
    }

    /// Removes a question whose answer is final.
    pub(super) fn forget(&mut self, node: &str, key: &ObjectKey) {
        self.asked.remove(&(node.to_owned(), key.clone()));
    }

    fn question(&self, clients: &Clients, node: String, key: ObjectKey, pause: Duration) -> BoxFuture<'static, Answer> {
        let (clients, turns) = (clients.clone(), Arc::clone(&self.turns));
        let ask = async move {
            tokio::time::sleep(pause).await;
            // The semaphore is never closed: it is held here.
            let _turn = turns.acquire_owned().await;
            // Create the client only now: it needs a task, a queue and some kilobytes, and thousands of questions may
            // wait.
            let may_read = may_read(clients.as_node(&node), &node, &key).boxed().await;
            Answer::Admission(Admission { node, key, may_read, pause })
        };
        ask.boxed()
    }
}

async fn may_read(client: Client, node: &str, key: &ObjectKey) -> bool {
    let Some(kind) = Kind::of(key) else { return false };
    let api: Api<DynamicObject> = Api::namespaced_with(client, &key.namespace, &of_kind(kind));
    match api.get_metadata_opt(&key.name).await {
        // Only an authorized user learns from the API that an object does not exist.
        Ok(_) => true,
        Err(error) => {
            let ObjectKey { kind, namespace, name, .. } = key;
            log::log!(level(&error), "node {node}: asking for {kind} {namespace}/{name} in its name: {error}");
            false
        }
    }
}

/// Level at which a failed question is logged. A refusal is usual: no pod of the node names the object any more, as
/// after the deletion of a namespace.
pub(super) fn level(error: &kube::Error) -> Level {
    match error {
        kube::Error::Api(status) if status.is_forbidden() => Level::Debug,
        _ => Level::Warn,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn refusal_of_what_a_node_no_longer_names_is_no_warning() {
        let answered =
            |(reason, code)| level(&kube::Error::Api(Box::new(Status::failure("m", reason).with_code(code))));
        let answers = [("Forbidden", 403), ("TooManyRequests", 429), ("InternalError", 500)];
        assert_eq!(answers.map(answered), [Level::Debug, Level::Warn, Level::Warn]);
    }
}
