//! The tables of the state file, and their migrations.

use rusqlite::Connection;

/// Application id of the file, so that another program's database is refused ("smpn").
pub(super) const APPLICATION_ID: i32 = 0x736d_706e;

/// One step per version, appended only: the step at index N leads from `user_version` N to N + 1.
const MIGRATIONS: &[&str] = &["
    -- The newest state of every object. `body` is its JSON without kind and apiVersion.
    CREATE TABLE objects (
        id INTEGER PRIMARY KEY,
        storage TEXT NOT NULL,
        ns TEXT NOT NULL,
        name TEXT NOT NULL,
        uid TEXT NOT NULL,
        rev INTEGER NOT NULL,
        expires INTEGER,
        body BLOB NOT NULL,
        UNIQUE (storage, ns, name)
    );
    CREATE INDEX objects_uid ON objects (uid);
    CREATE INDEX objects_expires ON objects (expires) WHERE expires IS NOT NULL;
    -- One row per write, bounded. `before` is the body that the write replaced, so each body is held once:
    -- what a write made is the `before` of the next write of that key, or in `objects`.
    CREATE TABLE changes (
        rev INTEGER PRIMARY KEY,
        storage TEXT NOT NULL,
        ns TEXT NOT NULL,
        name TEXT NOT NULL,
        kind INTEGER NOT NULL,
        at INTEGER NOT NULL,
        before BLOB
    );
    CREATE INDEX changes_key ON changes (storage, ns, name, rev);
    -- Which objects name an owner, for garbage collection.
    CREATE TABLE owners (
        owner TEXT NOT NULL,
        storage TEXT NOT NULL,
        ns TEXT NOT NULL,
        name TEXT NOT NULL,
        PRIMARY KEY (owner, storage, ns, name)
    ) WITHOUT ROWID;
    CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
", "
    -- Large bodies, by the revision that made them. `objects.body` and `changes.before` have that number in place of the
    -- body, one of them at a time. Bodies of older versions stay where they are.
    CREATE TABLE bodies (id INTEGER PRIMARY KEY, body BLOB NOT NULL);
"];

/// The newest version that this program knows.
pub(super) const VERSION: usize = MIGRATIONS.len();

/// Why a schema cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SchemaError {
    #[error("it is locked: another process uses it")]
    Locked,
    #[error(transparent)]
    Sqlite(rusqlite::Error),
    #[error("it belongs to another program (application id {0:#x})")]
    Foreign(i32),
    #[error("it was written by a newer version (schema {found}, this one knows {known})")]
    Newer { found: usize, known: usize },
    #[error("{0}: {1}")]
    Io(&'static str, std::io::Error),
    #[error("it is damaged: {0}")]
    Damaged(String),
    #[error(
        "{damage}. Nothing was changed. If it cannot be mended, start with --restore to go on from its copy{made}: what was \
         written since is lost"
    )]
    Copied { damage: String, made: String },
}

impl SchemaError {
    /// Whether the file has lost its contents, as opposed to being of no use to this program.
    pub(super) fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, SystemIoFailure};
        match self {
            Self::Damaged(_) => true,
            Self::Sqlite(error) => {
                matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase | SystemIoFailure))
            }
            Self::Locked | Self::Io(..) | Self::Foreign(_) | Self::Newer { .. } | Self::Copied { .. } => false,
        }
    }

    /// Whether the disk did not answer, which may pass: flash memory refuses a read once and gives it the next time.
    pub(super) fn may_pass(&self) -> bool {
        let Self::Sqlite(error) = self else { return false };
        error.sqlite_error_code() == Some(rusqlite::ErrorCode::SystemIoFailure)
    }
}

impl From<rusqlite::Error> for SchemaError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => Self::Locked,
            _ => Self::Sqlite(error),
        }
    }
}

/// Sets the connection up, checks the file and brings it to the current version.
pub(super) fn prepare(conn: &mut Connection) -> Result<(), SchemaError> {
    conn.busy_timeout(std::time::Duration::from_millis(200))?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    // A commit syncs nothing here: `sync` does it on another thread, for many commits at once. Checkpoints do sync.
    conn.pragma_update(None, "synchronous", "NORMAL")?;
    // Kilobytes: the bridge's memory budget pays for this cache.
    conn.pragma_update(None, "cache_size", -512)?;
    // Checkpoints sync too: `keeper` makes them on its thread. Writers that never pause prevent it from finishing one.
    // The log would then grow without a limit, so one of this length is written back while requests wait.
    conn.pragma_update(None, "wal_autocheckpoint", 16_000)?;
    // A writer would truncate a longer log, which takes time: `keeper` releases the space after a burst.
    conn.pragma_update(None, "journal_size_limit", 64 << 20)?;
    let verdict: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict != "ok" {
        return Err(SchemaError::Damaged(verdict));
    }
    let id: i32 = conn.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let version: usize = conn.query_row("PRAGMA user_version", [], |row| row.get::<_, u32>(0))? as usize;
    let tables: u32 = conn.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    if id != APPLICATION_ID && tables > 0 {
        return Err(SchemaError::Foreign(id));
    }
    if version > VERSION {
        return Err(SchemaError::Newer { found: version, known: VERSION });
    }
    for (index, step) in MIGRATIONS.iter().enumerate().skip(version) {
        let tx = conn.transaction()?;
        tx.execute_batch(step)?;
        tx.pragma_update(None, "user_version", i64::try_from(index + 1).unwrap_or(i64::MAX))?;
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.commit()?;
    }
    Ok(())
}
