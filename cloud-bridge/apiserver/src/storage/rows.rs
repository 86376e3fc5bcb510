//! The small statements and conversions that the storage's operations share.

use rusqlite::{Connection, Row, params};
use serde_json::Value;

use super::stored::{ChangeKind, Place};
use apimachinery::key::ObjectKey;

pub(super) fn unsigned(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(index).map(i64::cast_unsigned)
}

pub(super) fn place(row: &Row<'_>) -> rusqlite::Result<Place> {
    Ok((row.get(0)?, ObjectKey { namespace: row.get(1)?, name: row.get(2)? }))
}

pub(super) fn owners_of(value: &Value) -> Vec<String> {
    let references = value["metadata"]["ownerReferences"].as_array();
    references.into_iter().flatten().filter_map(|r| r["uid"].as_str()).map(str::to_owned).collect()
}

/// By the old owners, not only by the key: the table is ordered by owner, and scanning all of it would make each new
/// object more expensive than the one before.
pub(super) fn set_owners(
    conn: &Connection,
    storage: &str,
    key: &ObjectKey,
    old: &[String],
    new: &[String],
) -> rusqlite::Result<()> {
    if old == new {
        return Ok(());
    }
    for owner in old {
        conn.prepare_cached("DELETE FROM owners WHERE owner = ?1 AND storage = ?2 AND ns = ?3 AND name = ?4")?
            .execute(params![owner, storage, key.namespace, key.name])?;
    }
    for owner in new {
        conn.prepare_cached("INSERT OR IGNORE INTO owners (owner, storage, ns, name) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![owner, storage, key.namespace, key.name])?;
    }
    Ok(())
}

/// Adds a change to the history, with the state that it is about to replace: `objects` still has that, or its number.
pub(super) fn insert_change(
    conn: &Connection,
    storage: &str,
    key: &ObjectKey,
    rev: u64,
    kind: ChangeKind,
    at: i64,
) -> rusqlite::Result<usize> {
    conn.prepare_cached(
        "INSERT INTO changes (rev, storage, ns, name, kind, at, before) VALUES (?1, ?2, ?3, ?4, ?5, ?6, \
         (SELECT body FROM objects WHERE storage = ?2 AND ns = ?3 AND name = ?4))",
    )?
    .execute(params![rev.cast_signed(), storage, key.namespace, key.name, kind as i64, at])
}
