//! The index of roles and bindings, kept by the storage's writes: who reads an answer after a write finds it in force.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::policy::Policy;
use super::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES};
use crate::storage::{Store, StoreError};

/// The index, for as long as the storage is open.
#[derive(Default)]
pub(crate) struct Followed {
    policy: Arc<Mutex<Policy>>,
}

impl Followed {
    /// Reads what there is, one object at a time, and follows what is written from now on.
    pub(crate) fn follow(&self, store: &mut Store) -> Result<(), StoreError> {
        for storage in [ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS] {
            let mut after = None;
            while let Some(stored) = store.list(storage, None, after.as_ref(), Some(1))?.pop() {
                self.policy().change(storage, None, Some(stored.value()));
                after = Some(stored.key.clone());
            }
        }
        let policy = Arc::clone(&self.policy);
        store.observe(Box::new(move |storage, written| {
            let before = written.before.as_ref().map(|before| before.value());
            let mut policy = policy.lock().unwrap_or_else(PoisonError::into_inner);
            policy.change(storage, before, written.after());
        }));
        Ok(())
    }

    pub(crate) fn policy(&self) -> MutexGuard<'_, Policy> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
