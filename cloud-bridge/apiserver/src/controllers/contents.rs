//! Deleting all that a storage holds, in one namespace or in every one, some at a time.

use jiff::Timestamp;

use super::runner::Turn;
use crate::registry::delete::{self, Options};
use crate::resource::Resource;
use crate::resource::status::ApiResult;
use apimachinery::key::ObjectKey;
use apimachinery::meta;

/// Objects that are read at a time.
const PAGE: usize = 32;

/// Deletes what comes after this key and is not being deleted yet, until the turn is over: then tells after which to go
/// on.
pub(super) fn delete<K>(
    turn: &mut Turn<'_, K>,
    resource: &Resource,
    namespace: Option<&str>,
    mut after: Option<ObjectKey>,
) -> ApiResult<Option<ObjectKey>> {
    let options = Options { propagation: Some("Background".into()), ..Options::default() };
    loop {
        let page = turn.store.list(&resource.storage, namespace, after.as_ref(), Some(PAGE))?;
        if page.is_empty() {
            return Ok(None);
        }
        for stored in page {
            if !meta::deleting(stored.value()) {
                delete::remove(turn.store, resource, &stored, &options, Timestamp::now())?;
            }
            after = Some(stored.key.clone());
            if turn.over() {
                return Ok(after);
            }
        }
    }
}
