//! Which pods have to go for the taints of their nodes, and when (K8s pkg/controller/tainteviction/taint_eviction.go). Pure; times
//! are of a monotonic clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use apimachinery::key::ObjectKey;
use serde_json::Value;

use crate::placement::tolerates;
use apimachinery::json::integer;

/// A deletion that failed is tried again after this.
const RETRY: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pod {
    pub(super) node: String,
    pub(super) uid: String,
    /// Most pods have the same: they share them.
    pub(super) tolerations: Arc<Vec<Value>>,
}

/// All pods, and the nodes that are tainted against some of them.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    /// Taints by node.
    taints: HashMap<String, Vec<Value>>,
    pods: BTreeMap<ObjectKey, Pod>,
    on_node: HashMap<String, BTreeSet<ObjectKey>>,
    /// Since when a pod is about to go, and until when it may stay.
    scheduled: BTreeMap<ObjectKey, (Duration, Duration)>,
    due: BTreeSet<(Duration, ObjectKey)>,
}

/// How long a pod may stay.
#[derive(Debug, PartialEq, Eq)]
enum Stay {
    For(Duration),
    Forever,
}

fn stay(taints: &[Value], tolerations: &[Value]) -> Stay {
    let mut least = None;
    for taint in taints {
        let Some(toleration) = tolerations.iter().find(|one| tolerates(one, taint)) else {
            return Stay::For(Duration::ZERO);
        };
        if let Some(seconds) = integer(toleration, "tolerationSeconds") {
            let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
            least = Some(least.map_or(seconds, |least: Duration| least.min(seconds)));
        }
    }
    least.map_or(Stay::Forever, Stay::For)
}

impl Evictions {
    /// Sets the taints of a node. Returns pods that were to be evicted and now stay.
    pub(super) fn taints(&mut self, node: &str, taints: Vec<Value>, now: Duration) -> Vec<(ObjectKey, String)> {
        if self.taints.get(node).map_or(&[][..], Vec::as_slice) == taints {
            return Vec::new();
        }
        if taints.is_empty() {
            self.taints.remove(node);
        } else {
            self.taints.insert(node.to_owned(), taints);
        }
        let keys = self.on_node.get(node).cloned().unwrap_or_default();
        keys.iter().filter_map(|key| self.look(key, now)).collect()
    }

    /// A node is tainted: pods have to be known.
    pub(super) fn is_needed(&self) -> bool {
        !self.taints.is_empty()
    }

    /// The node of a pod that is known.
    pub(super) fn node_of(&self, key: &ObjectKey) -> Option<&str> {
        Some(&self.pods.get(key)?.node)
    }

    /// Adds or changes a pod. Returned if it was to be evicted and now stays.
    pub(super) fn pod(&mut self, key: ObjectKey, pod: Pod, now: Duration) -> Option<(ObjectKey, String)> {
        let before = self.pods.get(&key);
        if before == Some(&pod) {
            return None;
        }
        if before.is_some_and(|before| pod.uid != before.uid) {
            self.gone(&key);
        }
        self.on_node.entry(pod.node.clone()).or_default().insert(key.clone());
        self.pods.insert(key.clone(), pod);
        self.look(&key, now)
    }

    /// A pod went, or is on its way.
    pub(super) fn gone(&mut self, key: &ObjectKey) {
        if let Some(pod) = self.pods.remove(key)
            && let Some(keys) = self.on_node.get_mut(&pod.node)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.on_node.remove(&pod.node);
            }
        }
        self.cancel(key);
    }

    /// Names of all pods.
    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.pods.keys()
    }

    fn look(&mut self, key: &ObjectKey, now: Duration) -> Option<(ObjectKey, String)> {
        let pod = self.pods.get(key)?;
        let uid = pod.uid.clone();
        let taints = self.taints.get(&pod.node).map_or(&[][..], Vec::as_slice);
        let Stay::For(time) = stay(taints, &pod.tolerations) else {
            return self.cancel(key).then(|| (key.clone(), uid));
        };
        // The time runs from when the first taint was seen.
        let since = self.scheduled.get(key).map_or(now, |(since, _)| *since);
        let at = since.saturating_add(time);
        self.cancel(key);
        self.scheduled.insert(key.clone(), (since, at));
        self.due.insert((at, key.clone()));
        None
    }

    fn cancel(&mut self, key: &ObjectKey) -> bool {
        let Some((_, at)) = self.scheduled.remove(key) else { return false };
        self.due.remove(&(at, key.clone()));
        true
    }

    /// When the next pod has to go.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The next pod to evict now. It is returned again after a while, as long as it exists.
    pub(super) fn next(&mut self, now: Duration) -> Option<(ObjectKey, String)> {
        let key = self.due.first().filter(|(at, _)| *at <= now).map(|(_, key)| key.clone())?;
        let (since, _) = self.scheduled.get(&key).copied()?;
        self.cancel(&key);
        let uid = self.pods.get(&key)?.uid.clone();
        let again = now.saturating_add(RETRY);
        self.scheduled.insert(key.clone(), (since, again));
        self.due.insert((again, key.clone()));
        Some((key, uid))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "default".to_owned(), name: name.to_owned() }
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn taint(key: &str) -> Value {
        json!({"key": key, "value": null, "effect": "NoExecute"})
    }

    fn toleration(key: &str, seconds: Value) -> Value {
        json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
    }

    fn pod(tolerations: Value) -> Pod {
        let tolerations = Arc::new(tolerations.as_array().cloned().unwrap_or_default());
        Pod { node: "n".to_owned(), uid: "u".to_owned(), tolerations }
    }

    fn next(evictions: &mut Evictions, now: u64) -> Option<String> {
        evictions.next(s(now)).map(|(key, _)| key.name)
    }

    #[test]
    fn a_pod_stays_for_as_long_as_it_tolerates_all_taints() {
        let cases = [
            (json!([]), json!([]), Stay::Forever),
            (json!(["a"]), json!([]), Stay::For(s(0))),
            (json!(["a"]), json!([["b", null]]), Stay::For(s(0))),
            (json!(["a"]), json!([["a", null]]), Stay::Forever),
            (json!(["a"]), json!([["a", 7]]), Stay::For(s(7))),
            (json!(["a"]), json!([["a", -7]]), Stay::For(s(0))),
            (json!(["a", "b"]), json!([["a", 7], ["b", 5]]), Stay::For(s(5))),
            (json!(["a", "b"]), json!([["a", 7], ["b", null]]), Stay::For(s(7))),
            (json!(["a", "b"]), json!([["a", 7]]), Stay::For(s(0))),
            (json!(["a"]), json!([["a", i64::MAX]]), Stay::For(s(9_223_372_036_854_775_807))),
        ];
        for (taints, tolerations, expected) in cases {
            let of = |value: &Value| value.as_array().cloned().unwrap_or_default();
            let all: Vec<Value> = of(&taints).iter().map(|key| taint(key.as_str().unwrap())).collect();
            let tolerated: Vec<Value> =
                of(&tolerations).iter().map(|one| toleration(one[0].as_str().unwrap(), one[1].clone())).collect();
            assert_eq!(stay(&all, &tolerated), expected, "{taints} {tolerations}");
        }
    }

    #[test]
    fn pods_go_when_their_time_is_over_and_stay_when_the_taint_goes() {
        let mut evictions = Evictions::default();
        evictions.pod(key("at-once"), pod(json!([])), s(0));
        evictions.pod(key("later"), pod(json!([toleration("a", json!(30))])), s(0));
        evictions.pod(key("never"), pod(json!([toleration("a", Value::Null)])), s(0));
        assert_eq!(evictions.deadline(), None);
        assert!(evictions.taints("n", vec![taint("a")], s(10)).is_empty());
        assert_eq!((next(&mut evictions, 10), next(&mut evictions, 10)), (Some("at-once".to_owned()), None));
        evictions.gone(&key("at-once"));
        assert_eq!(evictions.deadline(), Some(s(40)));
        // A new pod on a tainted node.
        evictions.pod(key("new"), pod(json!([])), s(20));
        assert_eq!(next(&mut evictions, 20).as_deref(), Some("new"));
        assert_eq!(next(&mut evictions, 24), None);
        assert_eq!(next(&mut evictions, 25).as_deref(), Some("new"), "it is still there");
        evictions.gone(&key("new"));
        let stay = evictions.taints("n", Vec::new(), s(39));
        assert_eq!(stay, [(key("later"), "u".to_owned())]);
        assert_eq!((next(&mut evictions, 1000), evictions.deadline()), (None, None));
        // Its time starts again.
        evictions.taints("n", vec![taint("a")], s(2000));
        assert_eq!(evictions.deadline(), Some(s(2030)));
    }

    #[test]
    fn a_change_of_tolerations_counts_from_when_the_taint_was_seen() {
        let mut evictions = Evictions::default();
        evictions.taints("n", vec![taint("a")], s(0));
        evictions.pod(key("p"), pod(json!([toleration("a", json!(30))])), s(0));
        evictions.pod(key("p"), pod(json!([toleration("a", json!(300))])), s(20));
        assert_eq!(evictions.deadline(), Some(s(300)));
        evictions.pod(key("p"), pod(json!([toleration("a", json!(10))])), s(20));
        assert_eq!(next(&mut evictions, 20).as_deref(), Some("p"));
        evictions.pod(key("p"), Pod { uid: "other".to_owned(), ..pod(json!([toleration("a", json!(10))])) }, s(50));
        assert_eq!(evictions.deadline(), Some(s(60)), "another pod of the name");
        assert_eq!(evictions.keys().collect::<Vec<_>>(), [&key("p")]);
        evictions.gone(&key("p"));
        assert_eq!(evictions.deadline(), None);
    }

    #[test]
    fn pods_go_from_the_tainted_node_alone() {
        let mut evictions = Evictions::default();
        evictions.pod(key("here"), pod(json!([])), s(0));
        evictions.pod(key("there"), Pod { node: "m".to_owned(), ..pod(json!([])) }, s(0));
        assert!(!evictions.is_needed());
        evictions.taints("m", vec![taint("a")], s(1));
        assert!(evictions.is_needed());
        assert_eq!((next(&mut evictions, 1), next(&mut evictions, 1)), (Some("there".to_owned()), None));
        // Another pod of the name, elsewhere.
        evictions.pod(key("there"), Pod { uid: "v".to_owned(), ..pod(json!([])) }, s(2));
        assert_eq!(evictions.deadline(), None);
        assert_eq!(evictions.node_of(&key("there")), Some("n"));
    }
}
