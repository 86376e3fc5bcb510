//! What follows from writes and belongs to the API itself: garbage collection, namespaces, definitions, volumes and the
//! objects that every cluster has.

pub(crate) mod bootstrap;
pub(crate) mod definitions;
pub(crate) mod garbage_collector;
mod namespace_objects;
mod root_ca;
mod volume_binder;

use crate::state::{Follower, Inner};
use crate::storage::{Store, StoreError};

/// What follows at once from each write.
pub(crate) const FOLLOWERS: &[Follower] = &[namespace_objects::follow, definitions::follow, volume_binder::follow];

/// Does what should have followed from writes of an earlier run, or failed in this one: a power cut or an error may
/// come between an object and what belongs to it.
pub(crate) fn repair(inner: &Inner, store: &mut Store) -> Result<(), StoreError> {
    namespace_objects::repair(inner, store)?;
    volume_binder::repair(store)
}
