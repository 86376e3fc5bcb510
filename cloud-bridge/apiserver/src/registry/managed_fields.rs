//! managedFields: kept for those who use server-side apply, protected from everyone else.

use serde_json::Value;

use super::Context;
use super::apply;
use apimachinery::meta;

/// Sets the managedFields of a write. What clients send as managedFields does not count.
pub(crate) fn stamp(ctx: &Context<'_>, new: &mut Value, old: Option<&Value>) {
    let entries = match (&ctx.managed, old) {
        (Some(entries), _) => entries.clone(),
        (None, Some(old)) => apply::disown(&old["metadata"]["managedFields"], new, old),
        (None, None) => Value::Null,
    };
    meta::set(new, "managedFields", entries);
}
