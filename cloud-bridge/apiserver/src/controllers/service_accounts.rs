//! The service account that pods get when they name none, in every namespace
//! (K8s pkg/controller/serviceaccount/serviceaccounts_controller.go).

use jiff::Timestamp;
use serde_json::json;

use super::namespaces;
use super::queue::Queue;
use super::runner::{Controller, Seen, Turn};
use crate::resource::status::ApiResult;
use crate::state::Inner;
use crate::storage::{Store, StoreError};
use apimachinery::key::ObjectKey;
use apimachinery::meta;

const ACCOUNTS: &str = "serviceaccounts";
const NAME: &str = "default";

/// Creates the account in a new namespace, and again after it was deleted. The keys are namespaces.
#[derive(Default)]
pub(super) struct ServiceAccounts;

impl Controller for ServiceAccounts {
    type Key = String;

    const NAME: &'static str = "making service accounts";

    fn storages(_: &Inner) -> Vec<String> {
        vec![namespaces::STORAGE.into()]
    }

    fn keys(_: &Inner, seen: &Seen<'_>, queue: &Queue<String>) {
        match (seen.storage, seen.before, seen.after) {
            (namespaces::STORAGE, None, Some(_)) => queue.add(seen.key.name.clone()),
            (ACCOUNTS, Some(_), None) if seen.key.name == NAME => queue.add(seen.key.namespace.clone()),
            _ => {}
        }
    }

    fn reconcile(&mut self, turn: &mut Turn<'_, String>, namespace: &String) -> ApiResult<()> {
        Ok(reconcile(turn.store, namespace)?)
    }
}

/// Creates it if it is missing.
pub(super) fn reconcile(store: &mut Store, namespace: &str) -> Result<(), StoreError> {
    let key = ObjectKey { namespace: namespace.to_owned(), name: NAME.into() };
    if !namespaces::stays(store, namespace)? || store.get(ACCOUNTS, &key)?.is_some() {
        return Ok(());
    }
    let mut account = json!({ "metadata": { "name": NAME, "namespace": namespace } });
    meta::fill_new(&mut account, Timestamp::now());
    store.write(ACCOUNTS, account, None, None).map(drop)
}
