//! CPU and memory of nodes and pods as the page shows them (metrics.k8s.io). Read on request, each node and pod at most
//! once in 30 s for all readers. A value that cannot be read is unknown, and no error.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use apimachinery::quantity::Quantity;
use futures::future::join_all;
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::timeout;

const API: &str = "/apis/metrics.k8s.io/v1beta1";
pub(super) const GROUP: &str = "metrics.k8s.io";
/// Lifetime of a value, also of an unknown one.
const FRESH: Duration = Duration::from_secs(30);
/// Timeout of the API, which may measure at the node.
const PATIENCE: Duration = Duration::from_secs(15);
/// Values that are read from the API at a time.
const TURNS: usize = 16;
/// Nodes of one answer, and pods of one node.
pub(super) const NODES: usize = 64;
const PODS: u32 = 64;
/// Values that are kept.
const KEPT: usize = 8192;

/// Thousandths of a core, and bytes of the working set; none where the node does not count memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Used(i64, Option<i64>);

/// A value and when it was read. Locked while it is read, for all that want it.
type Place = Arc<tokio::sync::Mutex<Option<(Instant, Option<Used>)>>>;

pub(super) struct Usage {
    /// Last answers, by path in the API.
    kept: Mutex<HashMap<String, Place>>,
    turns: Semaphore,
}

impl Default for Usage {
    fn default() -> Self {
        Self { kept: Mutex::default(), turns: Semaphore::new(TURNS) }
    }
}

impl Usage {
    /// The known ones of these nodes by name: thousandths of a core and bytes.
    pub(super) async fn of_nodes(&self, client: &Client, names: Vec<String>) -> Value {
        let used = join_all(names.iter().map(|name| self.used(client, format!("nodes/{name}")))).await;
        let known = names.into_iter().zip(used).filter_map(|(name, used)| used.map(|used| (name, json!(used))));
        Value::Object(known.collect())
    }

    /// Namespace, name and usage of the known running pods of a node.
    ///
    /// # Errors
    /// The API does not list the pods.
    pub(super) async fn of_pods(&self, client: &Client, node: &str) -> kube::Result<Vec<Value>> {
        let running = format!("spec.nodeName={node},status.phase=Running");
        // Never closed.
        let turn = self.turns.acquire().await;
        let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default().fields(&running).limit(PODS)).await?;
        drop(turn);
        let names = pods.items.into_iter().filter_map(|pod| Some((pod.metadata.namespace?, pod.metadata.name?)));
        let names: Vec<(String, String)> = names.collect();
        let paths = names.iter().map(|(namespace, name)| format!("namespaces/{namespace}/pods/{name}"));
        let used = join_all(paths.map(|path| self.used(client, path))).await;
        let known = names
            .iter()
            .zip(used)
            .filter_map(|((namespace, name), used)| used.map(|used| json!([namespace, name, used])));
        Ok(known.collect())
    }

    async fn used(&self, client: &Client, path: String) -> Option<Used> {
        let place = self.place(&path)?;
        let mut kept = place.lock().await;
        if let Some((at, used)) = *kept
            && at.elapsed() < FRESH
        {
            return used;
        }
        // Never closed.
        let _turn = self.turns.acquire().await;
        let used = timeout(PATIENCE, read(client, &path)).await.ok().flatten();
        *kept = Some((Instant::now(), used));
        used
    }

    /// The place of a value; `None` if too many are kept.
    fn place(&self, path: &str) -> Option<Place> {
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = all.get(path) {
            return Some(Arc::clone(place));
        }
        if all.len() >= KEPT {
            all.retain(|_, place| Arc::strong_count(place) > 1 || is_fresh(place));
        }
        (all.len() < KEPT).then(|| Arc::clone(all.entry(path.to_owned()).or_default()))
    }
}

fn is_fresh(place: &Place) -> bool {
    place.try_lock().is_ok_and(|kept| kept.is_some_and(|(at, _)| at.elapsed() < FRESH))
}

async fn read(client: &Client, path: &str) -> Option<Used> {
    let request = Request::get(format!("{API}/{path}")).body(Vec::new()).ok()?;
    match client.request::<Value>(request).await {
        Ok(object) => sum(&object),
        Err(error) => {
            log::debug!("usage for the page, {path}: {error}");
            None
        }
    }
}

/// Usage of a NodeMetrics, or of all containers of a PodMetrics.
fn sum(object: &Value) -> Option<Used> {
    let parts: Vec<&Value> = object["containers"].as_array().map_or_else(|| vec![object], |all| all.iter().collect());
    let amount = |name: &str| {
        let mut amounts = parts.iter().map(|part| Quantity::from_value(&part["usage"][name]));
        amounts.try_fold(Quantity::ZERO, |all, one| Some(all.plus(one?)))
    };
    let (cpu, memory) = (amount("cpu")?, amount("memory"));
    (!parts.is_empty()).then(|| Used(cpu.millis(), memory.map(Quantity::units)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn metrics(cpu: &str, memory: &str) -> Value {
        json!({"usage": {"cpu": cpu, "memory": memory}})
    }

    /// An API that knows node `a` and pod `ns/web`, which runs there, and the number of its answers.
    fn api() -> (Client, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            let pod = |name: &str| json!({"metadata": {"namespace": "ns", "name": name}});
            let (code, body) = match request.uri().path().trim_start_matches(API) {
                "/nodes/a" => (200, metrics("250000000n", "1024Ki")),
                "/namespaces/ns/pods/web" => (200, json!({"containers": [metrics("1m", "1Mi"), metrics("2m", "1Mi")]})),
                "/api/v1/pods" => (200, json!({"metadata": {}, "items": [pod("web"), pod("new")]})),
                _ => (404, json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404})),
            };
            let body = http_body_util::Full::new(bytes::Bytes::from(body.to_string()));
            let mut answer = http::Response::new(body);
            *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
            async move { Ok::<_, std::convert::Infallible>(answer) }
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test]
    async fn usage_is_read_once_for_all_readers() {
        let ((client, asked), usage) = (api(), Usage::default());
        let names = || vec!["a".to_owned(), "b".to_owned()];
        let all = join_all((0..5).map(|_| usage.of_nodes(&client, names()))).await;
        assert!(all.iter().all(|one| *one == json!({"a": [250, 1 << 20]})), "{all:?}");
        assert_eq!(asked.load(Ordering::Relaxed), 2, "an unknown value is asked for once, too");
        let pods = usage.of_pods(&client, "a").await.unwrap();
        assert_eq!(pods, [json!(["ns", "web", [3, 2 << 20]])]);
    }

    #[test]
    fn usage_without_a_part_is_unknown() {
        assert_eq!(sum(&json!({"usage": {"cpu": "1"}})), Some(Used(1000, None)), "memory is not counted");
        assert_eq!(sum(&json!({"containers": [metrics("1", "1"), {"usage": {"memory": "1"}}]})), None);
        for odd in [json!({"containers": []}), json!({}), json!(7), json!({"usage": {"cpu": "x"}})] {
            assert_eq!(sum(&odd), None, "{odd}");
        }
    }

    #[test]
    fn kept_values_are_limited() {
        let usage = Usage::default();
        for number in 0..KEPT {
            usage.place(&number.to_string()).unwrap();
        }
        assert!(usage.place("more").is_some(), "values that nobody wants make room");
        for number in 0..KEPT {
            let place = usage.place(&number.to_string()).unwrap();
            *place.try_lock().unwrap() = Some((Instant::now(), None));
        }
        assert!(usage.place("another").is_none());
        assert!(usage.place("1").is_some());
    }
}
