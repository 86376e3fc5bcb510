//! The index of roles and bindings, updated by writes of the storage: a role is in force when its writer gets the
//! answer.

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use super::policy::Policy;
use super::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES};
use crate::storage::{Store, StoreError};

const FOLLOWED: [&str; 4] = [ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS];

/// The index, kept current while the storage is open. A decision uses the snapshot with which it began, so it blocks no
/// writer.
#[derive(Default, Clone)]
pub(crate) struct Followed {
    policy: Arc<RwLock<Arc<Policy>>>,
}

impl Followed {
    /// Reads all existing objects, one at a time, and follows later writes.
    pub(crate) fn follow(&self, store: &mut Store) -> Result<(), StoreError> {
        for storage in FOLLOWED {
            let mut after = None;
            while let Some(stored) = store.list(storage, None, after.as_ref(), Some(1))?.pop() {
                self.change(storage, None, Some(stored.value()));
                after = Some(stored.key.clone());
            }
        }
        let followed = self.clone();
        store.observe(Box::new(move |storage, written| {
            if FOLLOWED.contains(&storage) {
                followed.change(storage, written.before.as_ref().map(|before| before.value()), written.after());
            }
        }));
        Ok(())
    }

    /// Applies a change. Only the parts that a running decision holds are copied.
    pub(crate) fn change(&self, storage: &str, before: Option<&Value>, after: Option<&Value>) {
        let mut policy = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut policy).change(storage, before, after);
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }
}
