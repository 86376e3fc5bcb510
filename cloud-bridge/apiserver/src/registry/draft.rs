//! Draft of a write, made without the storage: reads and types the body, merges it with the stored object, fills in
//! defaults and sets the field owners. For a large object that is most of the work, so it runs beside the thread
//! (`state::apart`), which answers other requests meanwhile. A verb that needs a draft ends; when the draft is done,
//! the verb runs again. It uses the draft if the object has not changed since, as the API server retries a patch
//! (apiserver pkg/endpoints/handlers/patch.go, `patchResource`).

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::resource::Resource;
use crate::resource::status::ApiResult;
use crate::resource::strategy::Foreseen;
use crate::storage::Stored;

/// A write, as far as it is known without the storage.
pub(crate) enum Draft {
    New(New),
    Change(Box<Change>),
}

/// What a request says of a write.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) body: Bytes,
    pub(crate) media: String,
}

pub(crate) struct Drafted {
    pub(crate) draft: Draft,
    pub(crate) dry_run: bool,
}

/// A new object, as far as it is known without the storage.
pub(crate) struct New {
    pub(super) value: Value,
    pub(super) managed: Value,
    pub(super) foreseen: Option<Foreseen>,
}

/// A change of an object, as far as it is known without the storage.
pub(crate) struct Change {
    pub(super) current: Arc<Stored>,
    /// The object by the rules of now, where it is stored otherwise.
    pub(super) old: Option<Value>,
    pub(super) new: Value,
    /// The managedFields that the client sent.
    pub(super) sent: Value,
    pub(super) owners: Owners,
    pub(super) foreseen: Option<Foreseen>,
}

/// The managedFields after a change.
pub(super) enum Owners {
    /// Server-side apply has worked them out.
    Applied(Value),
    /// Those of an object that is stored with this hash: admission may change it.
    Foreseen(u64, Value),
    Unknown,
}

/// A draft to make beside the thread, and a finished one.
#[derive(Default)]
pub(crate) struct Aside {
    pub(super) pending: Option<Making>,
    pub(super) done: Option<Done>,
    /// The state that a write has replaced, parsed: the draft needed it, and nothing else does.
    pub(super) spent: Option<Arc<Stored>>,
    /// The verb would write a large object, for which the disk has no room yet.
    pub(super) awaits_disk: bool,
}

/// Makes a draft on another thread, of the resource and the object as they are by then.
type Making = Box<dyn FnOnce(Arc<Resource>, Option<Arc<Stored>>) -> Done + Send + Sync>;

/// A finished draft.
pub(super) struct Done {
    /// The revision that it was made for, and by what definition.
    pub(super) rev: Option<u64>,
    pub(super) resource: Arc<Resource>,
    pub(super) outcome: ApiResult<Drafted>,
    pub(super) warnings: Vec<String>,
}
