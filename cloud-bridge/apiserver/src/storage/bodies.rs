//! Storage of bodies. A large one has its own row in `bodies`, whose number the object's row contains instead of the
//! body. The change that replaces or deletes the object keeps the number. So each large body is written once, and a
//! deletion writes none.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::leases::LEASES;
use apimachinery::pace::is_large;

/// Size of a separately stored body, in bytes; 0 for a small one, which is in the row of its object.
pub(super) fn apart(bytes: usize) -> usize {
    if is_large(bytes) { bytes } else { 0 }
}

/// Stores the body that the write `rev` has made, if it is large. Returns the value for the row of its object.
pub(super) fn keep<'a>(
    conn: &Connection,
    storage: &str,
    rev: u64,
    body: &'a [u8],
) -> rusqlite::Result<ToSqlOutput<'a>> {
    // The history of Leases is in memory, so no change would keep the number.
    if storage == LEASES || !is_large(body.len()) {
        return Ok(ToSqlOutput::Borrowed(ValueRef::Blob(body)));
    }
    let number = rev.cast_signed();
    conn.prepare_cached("INSERT INTO bodies (id, body) VALUES (?1, ?2)")?.execute(params![number, body])?;
    Ok(ToSqlOutput::Borrowed(ValueRef::Integer(number)))
}

/// Reads the body that a row has in this column, itself or by its number.
pub(super) fn read(conn: &Connection, row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Vec<u8>>> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        ValueRef::Integer(number) => {
            let mut statement = conn.prepare_cached("SELECT body FROM bodies WHERE id = ?1")?;
            let body: Option<Vec<u8>> = statement.query_row([number], |row| row.get(0)).optional()?;
            // Nothing is null, as the body of any damaged row.
            Ok(Some(body.unwrap_or_default()))
        }
        other => Ok(Some(other.as_blob()?.to_vec())),
    }
}

/// SQL for the length of the body that a column has. Reads no body.
pub(super) fn length(column: &str) -> String {
    format!(
        "(CASE typeof({column}) WHEN 'integer' THEN (SELECT length(bodies.body) FROM bodies WHERE bodies.id = {column}) \
         ELSE length({column}) END)"
    )
}

/// Deletes the bodies that the changes up to and including `rev` have replaced. Called before those are deleted.
pub(super) fn forget(conn: &Connection, rev: u64) -> rusqlite::Result<()> {
    let sql = "DELETE FROM bodies WHERE id IN \
         (SELECT before FROM changes WHERE rev <= ?1 AND typeof(before) = 'integer')";
    conn.prepare_cached(sql)?.execute([rev.cast_signed()]).map(drop)
}

/// Deletes the bodies that no object has. For a storage without changes, which would name some of them.
pub(super) fn forget_replaced(conn: &Connection) -> rusqlite::Result<()> {
    let sql = "DELETE FROM bodies WHERE id NOT IN (SELECT body FROM objects WHERE typeof(body) = 'integer')";
    conn.execute(sql, []).map(drop)
}
