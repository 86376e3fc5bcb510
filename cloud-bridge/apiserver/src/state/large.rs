//! Limit of a namespace's large objects that controllers, the scheduler and the states of nodes keep in memory.
//! Kubernetes does not have such a limit, but more memory. ConfigMaps, Secrets and custom resources are kept only for
//! nodes and pods that name them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::storage::{ChangeKind, Store, StoreError};

/// Bytes of the large objects of one namespace.
const ROOM: usize = 16 << 20;
/// Smaller objects do not count.
const LARGE: usize = 64 << 10;
/// Where they are stored.
const KEPT: [&str; 14] = [
    "pods",
    "services",
    "endpoints",
    "replicationcontrollers",
    "persistentvolumeclaims",
    "deployments.apps",
    "replicasets.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "controllerrevisions.apps",
    "jobs.batch",
    "cronjobs.batch",
    "poddisruptionbudgets.policy",
    "horizontalpodautoscalers.autoscaling",
];

/// Bytes by namespace, kept by the storage's writes.
#[derive(Debug, Default)]
pub(crate) struct LargeObjects(Arc<Mutex<HashMap<String, usize>>>);

impl LargeObjects {
    /// Counts the existing objects, and follows later writes.
    pub(crate) fn follow(&self, store: &mut Store) -> Result<(), StoreError> {
        for storage in KEPT {
            for (namespace, bytes) in store.large(storage, LARGE)? {
                change(&mut self.used(), &namespace, 0, bytes);
            }
        }
        let used = Arc::clone(&self.0);
        store.observe(Box::new(move |storage, written| {
            let size = |bytes: usize| if bytes < LARGE { 0 } else { bytes };
            let before = written.before.as_ref().map_or(0, |before| size(before.body.len()));
            let after = if written.kind == ChangeKind::Deleted { 0 } else { size(written.object.body.len()) };
            if before != after && Self::keeps(storage) {
                let mut used = used.lock().unwrap_or_else(PoisonError::into_inner);
                change(&mut used, &written.object.key.namespace, before, after);
            }
        }));
        Ok(())
    }

    fn used(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the program keeps the objects of this storage in memory.
    pub(crate) fn keeps(storage: &str) -> bool {
        KEPT.contains(&storage)
    }

    /// Whether an object of `had` bytes may grow to `bytes`. Shrinking is always allowed.
    ///
    /// # Errors
    /// What there is too much of.
    pub(crate) fn admit(&self, namespace: &str, bytes: usize, had: usize) -> Result<(), String> {
        if bytes < LARGE || bytes <= had {
            return Ok(());
        }
        let used = self.used().get(namespace).copied().unwrap_or_default();
        let had = if had < LARGE { 0 } else { had };
        if used.saturating_sub(had).saturating_add(bytes) <= ROOM {
            return Ok(());
        }
        Err(format!(
            "objects of {LARGE} bytes and more take {used} bytes in this namespace: limit is {ROOM}. Delete some, or keep their data in ConfigMaps"
        ))
    }
}

fn change(used: &mut HashMap<String, usize>, namespace: &str, before: usize, after: usize) {
    let own = used.entry(namespace.to_owned()).or_default();
    *own = own.saturating_sub(before).saturating_add(after);
    if *own == 0 {
        used.remove(namespace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_objects_of_a_namespace_have_a_bounded_room() {
        let large = LargeObjects::default();
        let pod = |bytes: usize, had: usize| large.admit("n", bytes, had);
        for _ in 0..15 {
            assert_eq!(pod(1 << 20, 0), Ok(()));
            change(&mut large.used(), "n", 0, 1 << 20);
        }
        assert!(pod((1 << 20) + 1, 0).is_err() && pod((2 << 20) + 1, 1 << 20).is_err());
        assert_eq!((pod(1 << 20, 0), pod(2 << 20, 1 << 20)), (Ok(()), Ok(())), "the last megabyte");
        change(&mut large.used(), "n", 0, 1 << 20);
        assert_eq!((pod(LARGE - 1, 0), pod(LARGE, LARGE + 1)), (Ok(()), Ok(())), "small ones, and what shrinks");
        assert!(pod(LARGE, 0).unwrap_err().contains("Delete some"), "it is told what to do");
        assert_eq!(large.admit("m", 1 << 20, 0), Ok(()), "other namespaces");
        change(&mut large.used(), "n", 16 << 20, 0);
        assert!(large.used().is_empty());
    }

    #[test]
    fn storages_are_called_as_they_are() {
        let served = crate::kinds::resources();
        let is_served = |storage: &&str| served.iter().any(|one| one.storage == **storage && one.namespaced);
        assert_eq!(KEPT.iter().filter(|storage| !is_served(storage)).collect::<Vec<_>>(), [&""; 0]);
        assert!(!LargeObjects::keeps("configmaps"), "pods name those, and are asked elsewhere");
    }
}
