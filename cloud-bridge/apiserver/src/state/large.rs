//! Limit of a namespace's large objects that controllers, the scheduler and the states of nodes keep in memory.
//! Kubernetes does not have such a limit, but more memory. ConfigMaps, Secrets and custom resources are kept only for
//! nodes and pods that name them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::memory::{self, Metadata};
use crate::auth::node::references;
use crate::codec::bounds;
use crate::storage::{ChangeKind, LEASES, Store, StoreError};
use apimachinery::key::ObjectKey;

/// Bytes of the large objects of one namespace.
const ROOM: usize = 12 << 20;
/// Size from which the JSON of an object counts.
const LARGE: usize = 64 << 10;
/// Memory that the kept fields of each object may take without being counted.
const FREE: usize = 40 << 10;
/// Smaller objects are not looked at when the program starts.
const SMALL: usize = 1 << 10;
/// Maximum size of a Lease, whose JSON is kept with its history, and of its managedFields.
const LEASE: usize = 16 << 10;
/// Maximum number of different objects that one pod may name: nodes, their authorizer and the bridge follow each of them.
const NAMED: usize = 256;
/// What each object counts at least of a kind that is [`Kept::unbounded`].
const EACH: usize = 4 << 10;
/// The Leases of nodes, which are as many as these.
const NODE_LEASES: &str = "kube-node-lease";
const PODS: &str = "pods";
const KEPT: [Kept; 17] = [
    Kept::new(PODS, Metadata::Pod),
    Kept::new(LEASES, Metadata::Whole),
    Kept::new("services", Metadata::Whole),
    Kept::new("endpoints", Metadata::Whole),
    Kept::new("replicationcontrollers", Metadata::Workload),
    Kept::new("persistentvolumeclaims", Metadata::Whole),
    Kept::new("deployments.apps", Metadata::Whole),
    Kept::new("replicasets.apps", Metadata::Whole),
    Kept::new("statefulsets.apps", Metadata::Workload).unbounded(),
    Kept::new("daemonsets.apps", Metadata::Workload).unbounded(),
    Kept::new("controllerrevisions.apps", Metadata::Workload),
    Kept::new("jobs.batch", Metadata::Workload),
    Kept::new("cronjobs.batch", Metadata::Workload).unbounded(),
    Kept::new("poddisruptionbudgets.policy", Metadata::Whole).unbounded(),
    Kept::new("horizontalpodautoscalers.autoscaling", Metadata::Whole).unbounded(),
    Kept::new("roles.rbac.authorization.k8s.io", Metadata::Whole),
    Kept::new("rolebindings.rbac.authorization.k8s.io", Metadata::Whole),
];

/// A kind whose objects are kept.
#[derive(Debug)]
struct Kept {
    /// Where they are stored.
    storage: &'static str,
    /// What is kept of their metadata.
    metadata: Metadata,
    /// A usual quota does not bound their number: all of their memory counts, and at least [`EACH`].
    unbounded: bool,
}

impl Kept {
    const fn new(storage: &'static str, metadata: Metadata) -> Self {
        Self { storage, metadata, unbounded: false }
    }

    const fn unbounded(self) -> Self {
        Self { unbounded: true, ..self }
    }

    fn of(storage: &str) -> Option<&'static Self> {
        KEPT.iter().find(|kept| kept.storage == storage)
    }

    /// What an object counts.
    fn counted(&self, namespace: &str, object: &Value) -> usize {
        if self.storage == LEASES {
            return if namespace == NODE_LEASES { 0 } else { bounds::bytes(object) };
        }
        let bytes = bounds::bytes(object);
        let large = if bytes < LARGE { 0 } else { bytes };
        large.saturating_add(self.counted_memory(memory::of(object, self.metadata)))
    }

    /// What an object counts whose fields take this memory, beside its JSON.
    fn counted_memory(&self, memory: usize) -> usize {
        if self.unbounded { memory.max(EACH) } else { memory.saturating_sub(FREE) }
    }

    /// The same as [`Kept::counted`], of the JSON. There may be a hundred thousand when the program starts: small ones are
    /// not made values.
    fn counted_text(&self, namespace: &str, body: &[u8]) -> usize {
        // The approximate size of a value may be twice that of its text.
        if self.storage != LEASES && body.len() < LARGE / 4 {
            let mut text = serde_json::Deserializer::from_slice(body);
            return self.counted_memory(memory::of(&mut text, self.metadata));
        }
        self.counted(namespace, &serde_json::from_slice(body).unwrap_or_default())
    }
}

/// The objects of a namespace that count, by storage and name.
type Counted = HashMap<(String, String), usize>;

/// What counts, by namespace, kept by the storage's writes.
#[derive(Debug, Default)]
pub(crate) struct LargeObjects(Arc<Mutex<HashMap<String, Counted>>>);

impl LargeObjects {
    /// Counts the existing objects, and follows later writes.
    pub(crate) fn follow(&self, store: &mut Store) -> Result<(), StoreError> {
        for kept in &KEPT {
            let least = if kept.unbounded || kept.storage == LEASES { 0 } else { SMALL };
            store.each_large(kept.storage, least, |key, body| {
                put(&mut self.used(), kept.storage, key, kept.counted_text(&key.namespace, body));
            })?;
        }
        let used = Arc::clone(&self.0);
        store.observe(Box::new(move |storage, written| {
            if let Some(kept) = Kept::of(storage) {
                let object = &written.object;
                let is_gone = written.kind == ChangeKind::Deleted;
                let counted = if is_gone { 0 } else { kept.counted(&object.key.namespace, object.value()) };
                put(&mut used.lock().unwrap_or_else(PoisonError::into_inner), storage, &object.key, counted);
            }
        }));
        Ok(())
    }

    fn used(&self) -> MutexGuard<'_, HashMap<String, Counted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an object may be created or, with `old`, updated. Shrinking is always allowed.
    ///
    /// # Errors
    /// What there is too much of.
    pub(crate) fn admit(&self, storage: &str, namespace: &str, new: &Value, old: Option<&Value>) -> Result<(), String> {
        let Some(kept) = Kept::of(storage) else { return Ok(()) };
        if storage == LEASES && bounds::bytes(new) > LEASE.max(old.map_or(0, bounds::bytes)) {
            return Err(format!("a Lease is kept in memory: limit is {LEASE} bytes"));
        }
        if storage == PODS && named(new) > NAMED.max(old.map_or(0, named)) {
            return Err(format!("it names too many Secrets, ConfigMaps and claims: limit is {NAMED}"));
        }
        let counted = |object: &Value| kept.counted(namespace, object);
        self.has_room(namespace, counted(new), old.map_or(0, counted))
    }

    /// Whether an object that counted as `had` may count as `bytes`.
    fn has_room(&self, namespace: &str, bytes: usize, had: usize) -> Result<(), String> {
        if bytes <= had {
            return Ok(());
        }
        let used = self.used().get(namespace).map_or(0, |counted| counted.values().sum::<usize>());
        if used.saturating_sub(had).saturating_add(bytes) <= ROOM {
            return Ok(());
        }
        Err(format!(
            "large objects take {used} bytes in this namespace, and this one would take {bytes}: limit is {ROOM}. \
             Objects of {LARGE} bytes count, and fields that take more than {FREE} bytes in memory, such as many labels, \
             selectors, tolerations and terms. Delete some, or keep data in ConfigMaps"
        ))
    }
}

/// Number of different objects that a pod names.
fn named(pod: &Value) -> usize {
    let mut all = HashSet::new();
    references::of_pod(pod, &mut |kind, name| {
        all.insert((kind, name.to_owned()));
    });
    all.len()
}

/// The managedFields of an object. Those of a Lease that are too large go, as in Kubernetes when they cannot be computed.
pub(crate) fn owners(storage: &str, managed: Value) -> Value {
    let bytes = || bounds::Size::of(&managed, usize::MAX).map_or(0, |size| size.bytes);
    if storage == LEASES && bytes() > LEASE { Value::Null } else { managed }
}

fn put(used: &mut HashMap<String, Counted>, storage: &str, key: &ObjectKey, bytes: usize) {
    if bytes > 0 {
        let of_namespace = used.entry(key.namespace.clone()).or_default();
        of_namespace.insert((storage.to_owned(), key.name.clone()), bytes);
    } else if let Some(of_namespace) = used.get_mut(&key.namespace) {
        of_namespace.remove(&(storage.to_owned(), key.name.clone()));
        if of_namespace.is_empty() {
            used.remove(&key.namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn counted(storage: &str, namespace: &str, object: &Value) -> usize {
        Kept::of(storage).unwrap().counted(namespace, object)
    }

    fn counted_text(storage: &str, namespace: &str, body: &[u8]) -> usize {
        Kept::of(storage).unwrap().counted_text(namespace, body)
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "n".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn large_objects_of_a_namespace_have_a_bounded_room() {
        let large = LargeObjects::default();
        let pod = |bytes: usize, had: usize| large.has_room("n", bytes, had);
        for name in 0..11 {
            assert_eq!(pod(1 << 20, 0), Ok(()));
            put(&mut large.used(), "pods", &key(&name.to_string()), 1 << 20);
        }
        assert!(pod((1 << 20) + 1, 0).is_err() && pod((2 << 20) + 1, 1 << 20).is_err());
        assert_eq!((pod(1 << 20, 0), pod(2 << 20, 1 << 20)), (Ok(()), Ok(())), "the last megabyte");
        put(&mut large.used(), "services", &key("0"), 1 << 20);
        assert_eq!((pod(0, 0), pod(LARGE, LARGE + 1)), (Ok(()), Ok(())), "small ones, and what shrinks");
        assert!(pod(LARGE, 0).unwrap_err().contains("Delete some"), "it is told what to do");
        assert_eq!(large.has_room("m", 1 << 20, 0), Ok(()), "other namespaces");
        put(&mut large.used(), "pods", &key("0"), 0);
        assert_eq!(pod(1 << 20, 0), Ok(()), "a deleted one");
        (0..11).for_each(|name| put(&mut large.used(), "pods", &key(&name.to_string()), 0));
        put(&mut large.used(), "services", &key("0"), 0);
        assert!(large.used().is_empty());
    }

    /// Objects as charts make them, and how many a namespace may need.
    fn usual_objects() -> [(&'static str, Value, usize); 4] {
        let labels = |count: usize| -> Value {
            let label = |at: usize| (format!("app.kubernetes.io/label-{at}"), json!("backend-production"));
            (0..count).map(label).collect::<serde_json::Map<_, _>>().into()
        };
        let owners = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "backend-production",
            "uid": "0b0c6c8e-5d5c-4d0c-9f53-1f7a6d1f8b0a", "controller": true, "blockOwnerDeletion": true}]);
        let toleration = json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"});
        let field =
            json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["edge-node-00001"]}]}]);
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": field}});
        let pod = json!({
            "metadata": {"labels": labels(12), "ownerReferences": owners},
            "spec": {"tolerations": vec![toleration; 14], "affinity": {"nodeAffinity": required}, "hostNetwork": true,
                "nodeSelector": {"kubernetes.io/os": "linux"}, "securityContext": {"runAsUser": 1, "fsGroup": 1},
                "imagePullSecrets": [{"name": "registry"}], "serviceAccountName": "backend", "priority": 0,
                "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler", "restartPolicy": "Always"},
        });
        let applied = json!({"kubectl.kubernetes.io/last-applied-configuration": "x".repeat(2_000)});
        let selector = json!({"matchLabels": labels(3)});
        let template = json!({"metadata": {"labels": labels(16)}});
        let cron_job = json!({
            "metadata": {"labels": labels(8), "annotations": applied},
            "spec": {"schedule": "*/5 * * * *", "concurrencyPolicy": "Forbid", "suspend": false,
                "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1},
        });
        let set = json!({
            "metadata": {"labels": labels(16), "annotations": applied, "ownerReferences": owners},
            "spec": {"replicas": 3, "selector": selector, "template": template},
        });
        let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "8Gi"}}, "volumeMode": "Filesystem"}});
        let stateful = json!({
            "metadata": {"labels": labels(8), "annotations": applied},
            "spec": {"serviceName": "backend", "selector": selector, "volumeClaimTemplates": [claim],
                "template": {"metadata": {"labels": labels(8)}}},
        });
        [
            (PODS, pod, 10_000),
            ("replicasets.apps", set, 3_000),
            ("cronjobs.batch", cron_job, 2_000),
            ("statefulsets.apps", stateful, 1_000),
        ]
    }

    #[test]
    fn fields_that_are_kept_count_beyond_those_of_a_usual_object() {
        let requirements = |count: usize| vec![json!({"key": "a", "operator": "Exists"}); count];
        let tolerations: Vec<Value> = (0..8)
            .map(|_| json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}))
            .collect();
        let labels: serde_json::Map<String, Value> =
            (0..8).map(|at| (format!("app.kubernetes.io/label-{at}"), json!("value"))).collect();
        let usual = json!({
            "metadata": {"name": "a", "labels": labels, "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "a", "uid": "u"}]},
            "spec": {"tolerations": tolerations, "nodeSelector": {"a": "b"}, "securityContext": {"runAsUser": 1},
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                    {"nodeSelectorTerms": [{"matchFields": requirements(1)}]}}}},
        });
        assert_eq!((counted("replicasets.apps", "n", &usual), counted("pods", "n", &usual)), (0, 0));
        assert_eq!(counted("cronjobs.batch", "n", &json!({})), EACH, "their number is bounded, too");
        for (storage, object, count) in usual_objects() {
            let one = counted(storage, "n", &object);
            assert!(one.saturating_mul(count) <= ROOM, "{count} {storage}: {one}");
            assert_eq!(counted_text(storage, "n", object.to_string().as_bytes()), one);
        }
        let budget = json!({"spec": {"selector": {"matchExpressions": requirements(1_500)}}});
        let counts = counted("poddisruptionbudgets.policy", "n", &budget);
        assert!((1 << 20..2 << 20).contains(&counts), "{counts}");
        for list in [1, 100, 600, 1_500, 5_000] {
            let budget = json!({"spec": {"selector": {"matchExpressions": requirements(list)}, "a": vec![1; list]}});
            let text = budget.to_string();
            for storage in ["poddisruptionbudgets.policy", PODS, LEASES] {
                assert_eq!(
                    counted_text(storage, "n", text.as_bytes()),
                    counted(storage, "n", &budget),
                    "{list} {storage}"
                );
            }
        }
        let large = LargeObjects::default();
        let admit = |storage: &str| large.admit(storage, "n", &budget, None);
        for name in 0.. {
            if admit("poddisruptionbudgets.policy").is_err() {
                assert!((6..12).contains(&name), "{name}");
                break;
            }
            put(&mut large.used(), "poddisruptionbudgets.policy", &key(&name.to_string()), counts);
        }
        assert_eq!((admit("configmaps"), admit("pods").is_err()), (Ok(()), true), "the room is for all kinds together");
        assert_eq!(large.admit("pods", "n", &usual, None), Ok(()));
    }

    #[test]
    fn lease_is_small() {
        let of = |bytes: usize| json!({"spec": {"holderIdentity": "x".repeat(bytes)}});
        let admit = |new: usize, old: Option<usize>| {
            LargeObjects::default().admit(LEASES, "n", &of(new), old.map(of).as_ref()).is_ok()
        };
        assert!(admit(1_000, None) && !admit(LEASE, None) && !admit(2 * LEASE, Some(LEASE)));
        assert!(admit(LEASE, Some(LEASE)), "an old one can be deleted");
        let count = |namespace: &str| counted(LEASES, namespace, &of(1_000)) > 1_000;
        assert!(count("n") && !count(NODE_LEASES), "their number is bounded by their bytes");
        let managed = json!([{"manager": "x".repeat(LEASE)}]);
        assert_eq!((owners("pods", managed.clone()), owners(LEASES, managed.clone())), (managed, Value::Null));
    }

    #[test]
    fn pod_names_a_bounded_number_of_objects() {
        let of = |count: usize| {
            let from: Vec<Value> = (0..count).map(|at| json!({"secretRef": {"name": format!("s{at}")}})).collect();
            json!({"spec": {"containers": [{"envFrom": from}, {"envFrom": from}]}})
        };
        let admit = |new: usize, old: Option<usize>| {
            LargeObjects::default().admit(PODS, "n", &of(new), old.map(of).as_ref()).is_ok()
        };
        assert!(admit(NAMED, None) && !admit(NAMED + 1, None) && admit(NAMED + 1, Some(NAMED + 1)));
    }

    #[test]
    fn storages_are_called_as_they_are() {
        let served = crate::kinds::resources();
        let is_served = |storage: &&str| served.iter().any(|one| one.storage == **storage && one.namespaced);
        let kept = KEPT.iter().map(|kept| kept.storage);
        assert_eq!(kept.filter(|storage| !is_served(storage)).collect::<Vec<_>>(), [""; 0]);
        assert!(Kept::of("configmaps").is_none(), "pods name those, and are asked elsewhere");
    }
}
