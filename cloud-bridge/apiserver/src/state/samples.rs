//! The last measurement of each node: a rate needs two.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use kubelet_api::backend::{BackendError, KubeletBackend};

/// A rate needs two measurements at least this far apart...
const WINDOW: Duration = Duration::from_secs(1);
/// ...and at most this far.
const OLD: Duration = Duration::from_secs(30);
/// For a node to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The last measurement of each node.
#[derive(Default)]
pub(crate) struct Samples(Mutex<HashMap<String, (Instant, Arc<Value>)>>);

/// Two measurements of a node.
pub(crate) struct Measured {
    pub(crate) before: Arc<Value>,
    pub(crate) now: Arc<Value>,
    pub(crate) between: Duration,
}

impl Samples {
    fn newest(&self, node: &str) -> Option<(Instant, Arc<Value>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(node).cloned()
    }

    fn keep(&self, node: &str, at: Instant, summary: &Arc<Value>) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Of nodes that are asked for no more nothing is kept.
        samples.retain(|_, (kept, _)| at.duration_since(*kept) < 2 * OLD);
        samples.insert(node.to_owned(), (at, Arc::clone(summary)));
    }

    pub(crate) async fn measure(&self, backend: &dyn KubeletBackend, node: &str) -> Result<Measured, BackendError> {
        let ask = || async {
            let late = |_| BackendError::Unavailable(format!("node {node} did not answer"));
            let summary = tokio::time::timeout(PATIENCE, backend.stats(node)).await.map_err(late)??;
            let (at, summary) = (Instant::now(), Arc::new(summary));
            self.keep(node, at, &summary);
            Ok::<_, BackendError>((at, summary))
        };
        let recent = self.newest(node).filter(|(at, _)| at.elapsed() < OLD);
        let (since, before) = match recent {
            Some(recent) => recent,
            None => ask().await?,
        };
        tokio::time::sleep_until(since + WINDOW).await;
        let (at, now) = ask().await?;
        Ok(Measured { before, now, between: at.duration_since(since) })
    }
}
