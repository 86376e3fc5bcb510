//! What every namespace has: the service account that pods get when they name none, and the certificate of the API.

use jiff::Timestamp;
use serde_json::json;

use super::root_ca::root_ca;
use crate::auth::accounts::ROOT_CA;
use crate::resource::status::ApiResult;
use crate::state::{Change, Inner};
use crate::storage::{Store, StoreError};
use apimachinery::key::ObjectKey;
use apimachinery::meta;

/// Makes both in a new namespace, and again where one was deleted.
pub(crate) fn follow(inner: &Inner, store: &mut Store, change: &Change<'_>) -> ApiResult<()> {
    match (change.before, change.after) {
        (None, Some(namespace)) if change.of("", "namespaces") => both(inner, store, &namespace.key.name)?,
        (Some(gone), None) => {
            let (namespace, name) = (gone.key.namespace.as_str(), gone.key.name.as_str());
            let account = change.of("", "serviceaccounts") && name == "default";
            let certificate = change.of("", "configmaps") && name == ROOT_CA;
            if (account || certificate) && stays(store, namespace)? {
                both(inner, store, namespace)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Makes what should have followed from writes of an earlier run.
pub(super) fn repair(inner: &Inner, store: &mut Store) -> Result<(), StoreError> {
    for namespace in store.list("namespaces", None, None, None)? {
        if !meta::deleting(namespace.value()) {
            both(inner, store, &namespace.key.name)?;
        }
    }
    Ok(())
}

fn stays(store: &Store, namespace: &str) -> Result<bool, StoreError> {
    let found = store.get("namespaces", &ObjectKey::cluster(namespace))?;
    Ok(found.is_some_and(|namespace| !meta::deleting(namespace.value())))
}

fn both(inner: &Inner, store: &mut Store, namespace: &str) -> Result<(), StoreError> {
    default_account(store, namespace)?;
    root_ca(inner, store, namespace)
}

fn default_account(store: &mut Store, namespace: &str) -> Result<(), StoreError> {
    let key = ObjectKey { namespace: namespace.to_owned(), name: "default".into() };
    if store.get("serviceaccounts", &key)?.is_some() {
        return Ok(());
    }
    let mut account = json!({ "metadata": { "name": "default", "namespace": namespace } });
    meta::fill_new(&mut account, Timestamp::now());
    store.write("serviceaccounts", account, None, None)?;
    Ok(())
}
