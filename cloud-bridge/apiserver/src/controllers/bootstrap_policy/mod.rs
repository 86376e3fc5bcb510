//! The roles and bindings that every cluster has, made or completed at each start as Kubernetes does it
//! (pkg/registry/rbac/rest/storage_rbac.go).

mod policy;
mod reconcile;

use jiff::Timestamp;
use serde_json::Value;

use crate::auth::rbac::{CLUSTER_ROLES, ROLES};
use crate::storage::{Store, StoreError};
use apimachinery::key::ObjectKey;
use apimachinery::meta;
pub(crate) use policy::objects;
use reconcile::Binding;

/// Runs at every start; unchanged objects are not written.
pub(super) fn reconcile(store: &mut Store) -> Result<(), StoreError> {
    for (storage, expected) in objects() {
        let key = ObjectKey::of(&expected);
        let Some(current) = store.get(storage, &key)? else {
            create(store, storage, expected)?;
            continue;
        };
        let changed = if matches!(storage, ROLES | CLUSTER_ROLES) {
            reconcile::role(current.value(), &expected)
        } else {
            match reconcile::binding(current.value(), &expected) {
                Binding::Stays => None,
                Binding::Becomes(binding) => Some(binding),
                Binding::AnotherRole => {
                    store.delete(storage, &current)?;
                    create(store, storage, expected)?;
                    None
                }
            }
        };
        if let Some(changed) = changed {
            store.write(storage, changed, Some(&current), None)?;
        }
    }
    Ok(())
}

fn create(store: &mut Store, storage: &str, mut object: Value) -> Result<(), StoreError> {
    meta::fill_new(&mut object, Timestamp::now());
    store.write(storage, object, None, None).map(drop)
}
