//! The last measurement of each node: a rate needs two.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use kubelet_api::backend::{BackendError, KubeletBackend};

/// A rate needs two measurements at least this far apart...
const WINDOW: Duration = Duration::from_secs(1);
/// ...and at most this far.
const OLD: Duration = Duration::from_secs(30);
/// Timeout for a node's answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The last measurements of each node. One may be large, and many clients may ask at once: each node is measured once
/// at a time, for all of them.
#[derive(Default)]
pub(crate) struct Samples {
    kept: Mutex<HashMap<String, Kept>>,
    /// Nodes whose measurement is in progress.
    turns: Mutex<HashMap<String, Weak<Turn>>>,
}

type Turn = tokio::sync::Mutex<()>;

struct Kept {
    at: Instant,
    summary: Arc<Value>,
    /// Result of this measurement and the one before.
    measured: Option<Measured>,
}

/// Two measurements of a node.
#[derive(Clone)]
pub(crate) struct Measured {
    pub(crate) before: Arc<Value>,
    pub(crate) now: Arc<Value>,
    pub(crate) between: Duration,
}

impl Samples {
    fn kept(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn newest(&self, node: &str) -> Option<(Instant, Arc<Value>)> {
        self.kept().get(node).map(|kept| (kept.at, Arc::clone(&kept.summary)))
    }

    /// A measurement within the window, if another client requested one.
    fn measured(&self, node: &str) -> Option<Measured> {
        self.kept().get(node).filter(|kept| kept.at.elapsed() < WINDOW).and_then(|kept| kept.measured.clone())
    }

    fn keep(&self, node: &str, at: Instant, summary: &Arc<Value>, measured: Option<Measured>) {
        let mut all = self.kept();
        // Measurements of nodes without requests are dropped.
        all.retain(|_, kept| at.duration_since(kept.at) < 2 * OLD);
        all.insert(node.to_owned(), Kept { at, summary: Arc::clone(summary), measured });
    }

    fn turn(&self, node: &str) -> Arc<Turn> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(node).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::<Turn>::default();
        turns.insert(node.to_owned(), Arc::downgrade(&turn));
        turn
    }

    pub(crate) async fn measure(&self, backend: &dyn KubeletBackend, node: &str) -> Result<Measured, BackendError> {
        let turn = self.turn(node);
        let _turn = tokio::time::timeout(PATIENCE, turn.lock()).await.map_err(|_| late(node))?;
        if let Some(measured) = self.measured(node) {
            return Ok(measured);
        }
        let recent = self.newest(node).filter(|(at, _)| at.elapsed() < OLD);
        let (since, before) = match recent {
            Some(recent) => recent,
            None => {
                let (at, summary) = ask(backend, node).await?;
                self.keep(node, at, &summary, None);
                (at, summary)
            }
        };
        tokio::time::sleep_until(since + WINDOW).await;
        let (at, now) = ask(backend, node).await?;
        let measured = Measured { before, now: Arc::clone(&now), between: at.duration_since(since) };
        self.keep(node, at, &now, Some(measured.clone()));
        Ok(measured)
    }
}

async fn ask(backend: &dyn KubeletBackend, node: &str) -> Result<(Instant, Arc<Value>), BackendError> {
    let summary = tokio::time::timeout(PATIENCE, backend.stats(node)).await.map_err(|_| late(node))??;
    Ok((Instant::now(), Arc::new(summary)))
}

fn late(node: &str) -> BackendError {
    BackendError::Unavailable(format!("node {node} did not answer"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kubelet_api::backend::{BoxFuture, Channels, LogOptions, LogStream, PodOnNode, SessionOptions};
    use serde_json::json;

    use super::*;

    /// How often it was asked, and how many asked at once at the most.
    #[derive(Default)]
    struct Node {
        asked: AtomicUsize,
        asking: AtomicUsize,
        most: AtomicUsize,
    }

    fn none<T: Send + 'static>() -> BoxFuture<'static, Result<T, BackendError>> {
        Box::pin(async { Err(BackendError::Internal("nothing of the kind".to_owned())) })
    }

    impl KubeletBackend for Node {
        fn logs(&self, _: PodOnNode, _: LogOptions) -> BoxFuture<'_, Result<LogStream, BackendError>> {
            none()
        }

        fn exec(&self, _: PodOnNode, _: SessionOptions) -> BoxFuture<'_, Result<Channels, BackendError>> {
            none()
        }

        fn attach(&self, _: PodOnNode, _: SessionOptions) -> BoxFuture<'_, Result<Channels, BackendError>> {
            none()
        }

        fn port_forward(&self, _: PodOnNode, _: u16) -> BoxFuture<'_, Result<Channels, BackendError>> {
            none()
        }

        fn connected(&self, _: &str) -> Result<(), BackendError> {
            Ok(())
        }

        fn stats(&self, _: &str) -> BoxFuture<'_, Result<Value, BackendError>> {
            Box::pin(async {
                self.asked.fetch_add(1, Ordering::Relaxed);
                let asking = self.asking.fetch_add(1, Ordering::Relaxed) + 1;
                self.most.fetch_max(asking, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(10)).await;
                self.asking.fetch_sub(1, Ordering::Relaxed);
                Ok(json!({}))
            })
        }

        fn pods(&self, _: &str) -> BoxFuture<'_, Result<Value, BackendError>> {
            none()
        }
    }

    #[tokio::test]
    async fn many_who_ask_for_a_node_measure_it_once() {
        let (samples, node) = (Samples::default(), Node::default());
        let all = (0..100).map(|_| samples.measure(&node, "n"));
        assert!(
            futures::future::join_all(all)
                .await
                .iter()
                .all(|measured| measured.as_ref().is_ok_and(|one| one.between >= WINDOW))
        );
        assert_eq!((node.asked.into_inner(), node.most.into_inner()), (2, 1));
        samples.turn("m");
        assert_eq!(samples.turns.lock().unwrap().len(), 1, "nothing is kept of who is not being measured");
    }
}
