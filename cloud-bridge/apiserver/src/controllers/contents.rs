//! Deleting all that a storage holds, in one namespace or in every one, one after the other.

use jiff::Timestamp;

use super::runner::Turn;
use crate::registry::delete::{self, Options};
use crate::resource::Resource;
use crate::resource::status::ApiResult;
use apimachinery::key::ObjectKey;
use apimachinery::meta;

/// Deletes objects after this key that are not being deleted yet, until the time slice is over; then returns the key at
/// which to continue.
pub(super) fn delete<K>(
    turn: &mut Turn<'_, K>,
    resource: &Resource,
    namespace: Option<&str>,
    mut after: Option<ObjectKey>,
) -> ApiResult<Option<ObjectKey>> {
    let options = Options { propagation: Some("Background".into()), ..Options::default() };
    while let Some(stored) = turn.store.list(&resource.storage, namespace, after.as_ref(), Some(1))?.pop() {
        if !meta::deleting(stored.value()) {
            delete::remove(turn.store, resource, &stored, &options, Timestamp::now())?;
        }
        after = Some(stored.key.clone());
        if turn.over() {
            return Ok(after);
        }
    }
    Ok(None)
}
