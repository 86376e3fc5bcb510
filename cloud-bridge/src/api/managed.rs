//! managedFields: kept for those who use server-side apply, protected from everyone else.

use serde_json::Value;

use super::meta;
use super::rest::Context;

/// A create or update that is no apply: what clients sent as managedFields does not count; the appliers'
/// entries stay.
pub(super) fn stamp(_ctx: &Context<'_>, new: &mut Value, old: Option<&Value>) {
    let kept = old.map(|o| o["metadata"]["managedFields"].clone()).unwrap_or_default();
    meta::set(new, "managedFields", kept);
}
