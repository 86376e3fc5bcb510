//! Tables, as a list of migrations that only grows: entry N converts the schema from version N to N+1; `user_version`
//! is the number of applied ones.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::error::StoreError;
use super::facts::Fact;

const MIGRATIONS: &[&str] = &[
    // Facts: single values (stream position, cluster id, time floor).
    // Objects: what the cloud wants here and what its pods refer to, body as received.
    // Pods: what the runtime knows of each pod it runs, as JSON of `pod::record::PodRecord`.
    // Images, image_references: what is unpacked; layers are folders named by diff id.
    // Outbox: reports the bridge has not acknowledged; `subject` set where the newest replaces the older.
    "CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
     CREATE TABLE objects (
         kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
         uid TEXT NOT NULL, digest TEXT NOT NULL, body TEXT NOT NULL,
         PRIMARY KEY (kind, namespace, name)) WITHOUT ROWID;
     CREATE TABLE pods (uid TEXT PRIMARY KEY, record TEXT NOT NULL, manifest TEXT) WITHOUT ROWID;
     CREATE TABLE images (id TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
     CREATE TABLE image_references (reference TEXT PRIMARY KEY, image TEXT NOT NULL) WITHOUT ROWID;
     CREATE TABLE outbox (
         id INTEGER PRIMARY KEY AUTOINCREMENT, subject TEXT UNIQUE, report TEXT NOT NULL);",
    // Tokens: service account tokens of pods, as JSON of `volume::token::Held`.
    "CREATE TABLE tokens (
         uid TEXT NOT NULL, name TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (uid, name)) WITHOUT ROWID;",
    // Seen: boot time in seconds when an event was first found waiting; null for those that were not looked at yet.
    "ALTER TABLE outbox ADD COLUMN seen INTEGER;",
    // Device twins: what the helper for devices keeps of each, by the Device's uid. Written: milliseconds since 1970.
    "CREATE TABLE device_twins (uid TEXT PRIMARY KEY, record TEXT NOT NULL, written INTEGER NOT NULL) WITHOUT ROWID;",
    // Device messages: what waits for the bridge, by the uid of its rule. Expires: by `Fact::MessageClock`. Bytes: of the record.
    "CREATE TABLE device_messages (
         id INTEGER PRIMARY KEY AUTOINCREMENT, rule TEXT NOT NULL, class INTEGER NOT NULL, expires INTEGER NOT NULL,
         bytes INTEGER NOT NULL, record TEXT NOT NULL);
     CREATE INDEX device_messages_of_rule ON device_messages (rule, id);
     CREATE INDEX device_messages_by_class ON device_messages (class, id, bytes);",
];

/// The oldest schema whose programs can use the newest store. Raise it to a migration's number if that does more than
/// add tables and nullable columns. An older program does not touch a store that it cannot use, and takes the copy from
/// before the migration.
const READABLE_FROM: usize = 1;

/// The migrations that `db` lacks.
fn missing(db: &Connection, path: &Path) -> Result<&'static [&'static str], StoreError> {
    let (found, known) = (version(db, path)?, MIGRATIONS.len());
    match MIGRATIONS.get(found..) {
        Some(missing) => Ok(missing),
        None if readable_from(db).is_some_and(|from| from <= known) => Ok(&[]),
        None => Err(StoreError::Newer { path: path.into(), found, known }),
    }
}

/// How many migrations were applied.
fn version(db: &Connection, path: &Path) -> Result<usize, StoreError> {
    let version: i64 = db
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(|source| StoreError::Sqlite { path: path.into(), source })?;
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

/// Reads the value that a newer program stored.
fn readable_from(db: &Connection) -> Option<usize> {
    let sql = "SELECT value FROM facts WHERE key = ?1";
    let text: String = db.query_row(sql, [Fact::ReadableFrom.key()], |row| row.get(0)).ok()?;
    text.parse().ok()
}

/// The version of the store before the missing migrations; `None` if it is current or new.
///
/// # Errors
/// Same as [`migrate`].
pub(super) fn outdated(db: &Connection, path: &Path) -> Result<Option<usize>, StoreError> {
    let found = version(db, path)?;
    Ok((found > 0 && !missing(db, path)?.is_empty()).then_some(found))
}

/// Versions whose stores can be opened.
pub(super) fn known() -> std::ops::RangeInclusive<usize> {
    1..=MIGRATIONS.len()
}

/// Brings `db` to the newest schema in one transaction.
///
/// # Errors
/// SQLite fails, or the file is from a newer version.
pub(super) fn migrate(db: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let sqlite = |source| StoreError::Sqlite { path: path.into(), source };
    if missing(db, path)?.is_empty() {
        return Ok(());
    }
    let tx = db.transaction_with_behavior(TransactionBehavior::Exclusive).map_err(sqlite)?;
    // Asked again under the lock: another process may have made the tables meanwhile.
    for migration in missing(&tx, path)? {
        tx.execute_batch(migration).map_err(sqlite)?;
    }
    tx.pragma_update(None, "user_version", i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)).map_err(sqlite)?;
    tx.execute(
        "INSERT OR REPLACE INTO facts (key, value) VALUES (?1, ?2)",
        (Fact::ReadableFrom.key(), READABLE_FROM.to_string()),
    )
    .map_err(sqlite)?;
    tx.commit().map_err(sqlite)
}
