//! Backups: one SQLite file with all objects of the state file and the small files beside it, such as keys. Also the
//! opposite: the copy that [`open`](super::open) restores, made from a backup.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};

mod header;

use super::keeper::{beside, sync_folder};
use super::schema::{self, SchemaError};
use super::write::set_fact;
use super::{gone, open};
use header::{BACKUP_ID, application, head, whole};

/// Maximum number of small files, and maximum bytes of one.
pub const MAX_FILES: usize = 32;
pub const MAX_FILE: usize = 64 << 10;
/// Exponent of the revisions for each second since 1970. No run makes a million in a second, so the revisions after a
/// restore are above those of every run before it, also of runs whose state file is lost.
const PER_SECOND: u32 = 20;

/// Why a backup cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Sql { path: PathBuf, source: rusqlite::Error },
    #[error("{}: {problem}", path.display())]
    Unusable { path: PathBuf, problem: String },
    #[error("{}: a bridge uses this state: stop it first (systemctl stop cloud-bridge)", .0.display())]
    Running(PathBuf),
}

impl BackupError {
    fn unusable(path: &Path, problem: impl Into<String>) -> Self {
        Self::Unusable { path: path.to_owned(), problem: problem.into() }
    }
}

/// A file of the state folder other than the state file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmallFile {
    /// Path below the state folder.
    pub name: String,
    pub bytes: Vec<u8>,
}

/// What a backup contains.
#[derive(Debug)]
pub struct Contents {
    /// When it was made, RFC 3339.
    pub made: String,
    pub files: Vec<SmallFile>,
    /// Names of its Nodes, sorted.
    pub nodes: Vec<String>,
    /// Number of its join tokens.
    pub tokens: usize,
}

/// Keeps every other process from using a state file, until this is dropped.
///
/// # Errors
/// [`BackupError::Running`] if a bridge uses it.
pub fn lock(state_file: &Path) -> Result<File, BackupError> {
    open::lock(state_file).map_err(|error| match error {
        SchemaError::Locked => BackupError::Running(state_file.to_owned()),
        other => BackupError::unusable(state_file, other.to_string()),
    })
}

/// Writes a backup of a state file, which a bridge may be using: its writers do not wait. The backup gets its name when
/// it is complete, on the disk and can be read as a backup, and is readable for its owner only. Then it replaces an earlier
/// backup of that name.
///
/// # Errors
/// The state file cannot be read, the backup cannot be written, or another kind of file has its name.
pub fn write(state_file: &Path, files: &[SmallFile], made: &str, to: &Path) -> Result<Contents, BackupError> {
    let io = |source| BackupError::Io { path: to.to_owned(), source };
    match head(to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io(error)),
        Ok((head, _)) if application(&head) == Some(BACKUP_ID) => {}
        Ok(_) => return Err(BackupError::unusable(to, "the file exists and is no backup; choose another name")),
    }
    let new = beside(to, "partial");
    let written = fill(state_file, files, made, &new).and_then(|()| inspect(&new)).and_then(|found| {
        fs::rename(&new, to).and_then(|()| sync_folder(to)).map_err(io)?;
        Ok(found)
    });
    if written.is_err() {
        let _ = remove(&new);
    }
    written
}

fn fill(state_file: &Path, files: &[SmallFile], made: &str, new: &Path) -> Result<(), BackupError> {
    let io = |source| BackupError::Io { path: new.to_owned(), source };
    let sql = |source| BackupError::Sql { path: new.to_owned(), source };
    remove(new).map_err(io)?;
    // SQLite accepts an empty file as its own; this one is readable only for its owner.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new).map_err(io)?;
    let target = new.to_str().ok_or_else(|| BackupError::unusable(new, "its path is no text"))?;
    existing(state_file)
        .and_then(|source| source.execute("VACUUM INTO ?1", [target]))
        .map_err(|source| BackupError::Sql { path: place(&source, state_file, new).to_owned(), source })?;
    let mut backup = Connection::open(new).map_err(sql)?;
    let id: i32 = backup.query_row("PRAGMA application_id", [], |row| row.get(0)).map_err(sql)?;
    if id != schema::APPLICATION_ID {
        return Err(BackupError::unusable(state_file, "this is no state file of a bridge"));
    }
    let mut add = || -> rusqlite::Result<()> {
        backup.pragma_update(None, "synchronous", "FULL")?;
        let tx = backup.transaction()?;
        tx.execute_batch("CREATE TABLE backup (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID")?;
        // No path of a file is empty.
        tx.execute("INSERT INTO backup (name, body) VALUES ('', ?1)", [made.as_bytes()])?;
        for file in files {
            tx.execute("INSERT INTO backup (name, body) VALUES (?1, ?2)", params![file.name, file.bytes])?;
        }
        tx.pragma_update(None, "application_id", BACKUP_ID)?;
        tx.commit()
    };
    add().map_err(sql)?;
    drop(backup);
    file.sync_all().map_err(io)
}

/// The file of an error while one is copied to the other.
fn place<'a>(error: &rusqlite::Error, from: &'a Path, to: &'a Path) -> &'a Path {
    if error.sqlite_error_code() == Some(ErrorCode::DiskFull) { to } else { from }
}

/// Reads and checks a backup.
///
/// # Errors
/// It is another kind of file, cut off, damaged, or of a newer version.
pub fn inspect(path: &Path) -> Result<Contents, BackupError> {
    let (head, length) = head(path).map_err(|source| BackupError::Io { path: path.to_owned(), source })?;
    whole(&head, length).map_err(|problem| BackupError::unusable(path, problem))?;
    let read = || -> rusqlite::Result<Result<Contents, String>> {
        let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        conn.pragma_update(None, "cache_size", -512)?;
        let version: u32 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let known = schema::VERSION;
        if usize::try_from(version).is_ok_and(|version| version > known) {
            return Ok(Err(format!(
                "a newer version of cloud-bridge made this backup (schema {version}, this one knows {known}): install that \
                 version, then restore"
            )));
        }
        let verdict: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if verdict != "ok" {
            return Ok(Err(format!("the backup is damaged ({verdict}): copy it again, or use another")));
        }
        contents(&conn)
    };
    match read() {
        Ok(found) => found.map_err(|problem| BackupError::unusable(path, problem)),
        Err(source) => Err(BackupError::Sql { path: path.to_owned(), source }),
    }
}

fn contents(conn: &Connection) -> rusqlite::Result<Result<Contents, String>> {
    let mut statement = conn.prepare("SELECT name, length(body) FROM backup ORDER BY name")?;
    let sizes: Vec<(String, i64)> =
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    let too_long = sizes.iter().any(|(_, bytes)| usize::try_from(*bytes).is_ok_and(|bytes| bytes > MAX_FILE));
    if sizes.len() > MAX_FILES + 1 || too_long {
        return Ok(Err(format!("it has more than {MAX_FILES} small files, or one of more than {MAX_FILE} bytes")));
    }
    let (mut files, mut made) = (Vec::new(), String::new());
    for (name, _) in sizes {
        let bytes: Vec<u8> = conn.query_row("SELECT body FROM backup WHERE name = ?1", [&name], |row| row.get(0))?;
        if name.is_empty() {
            made = String::from_utf8_lossy(&bytes).into_owned();
        } else {
            files.push(SmallFile { name, bytes });
        }
    }
    let mut statement = conn.prepare("SELECT name FROM objects WHERE storage = 'nodes' ORDER BY name")?;
    let nodes = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let tokens = gone::tokens(conn)?.len();
    Ok(Ok(Contents { made, files, nodes, tokens }))
}

/// Makes the copy of a state file from a backup: `open` restores from it when the state file is missing. Its revisions
/// continue above those of the backup, of `present` (the state file that it replaces, if that can be read) and of `now`
/// in seconds since 1970. Without `keep_tokens` the copy has no join tokens.
///
/// # Errors
/// The copy cannot be written.
pub fn copy_from(backup: &Path, copy: &Path, present: &Path, now: u64, keep_tokens: bool) -> Result<(), BackupError> {
    let io = |source| BackupError::Io { path: copy.to_owned(), source };
    fs::copy(backup, copy).and_then(|_| fs::set_permissions(copy, Permissions::from_mode(0o600))).map_err(io)?;
    let convert = || -> rusqlite::Result<()> {
        let mut conn = Connection::open(copy)?;
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.pragma_update(None, "cache_size", -512)?;
        // The small files have keys: they stay in no free page.
        conn.pragma_update(None, "secure_delete", true)?;
        let tx = conn.transaction()?;
        tx.execute_batch("DROP TABLE backup")?;
        if !keep_tokens {
            for (namespace, name) in gone::tokens(&tx)? {
                gone::remove(&tx, "secrets", &namespace, &name)?;
            }
        }
        let own = ceiling(&tx)?;
        // A file that cannot be read has a counter that is not known: the clock covers it.
        let other = existing(present).and_then(|present| ceiling(&present)).unwrap_or_default();
        set_fact(&tx, "ceiling", next_ceiling(own, other, now))?;
        tx.pragma_update(None, "application_id", schema::APPLICATION_ID)?;
        tx.commit()
    };
    convert().map_err(|source| BackupError::Sql { path: copy.to_owned(), source })?;
    File::open(copy).and_then(|file| file.sync_all()).map_err(io)
}

/// The revision from which a restored state continues.
fn next_ceiling(backup: u64, present: u64, now: u64) -> u64 {
    backup.max(present).max(now.min(u64::from(u32::MAX)) << PER_SECOND)
}

/// The highest revision that a run with this file can have given out.
fn ceiling(conn: &Connection) -> rusqlite::Result<u64> {
    let last: Option<i64> = conn.query_row("SELECT max(rev) FROM changes", [], |row| row.get(0))?;
    let ceiling: Option<i64> =
        conn.query_row("SELECT value FROM facts WHERE name = 'ceiling'", [], |row| row.get(0)).optional()?;
    Ok(last.max(ceiling).map_or(0, i64::cast_unsigned))
}

/// A connection to a file that exists.
fn existing(path: &Path) -> rusqlite::Result<Connection> {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    conn.busy_timeout(Duration::from_secs(5))?;
    conn.pragma_update(None, "cache_size", -256)?;
    Ok(conn)
}

/// Removes an unfinished backup.
fn remove(new: &Path) -> io::Result<()> {
    for path in [new.to_owned(), open::with_suffix(new, "-journal")] {
        open::remove_if_there(&path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_is_that_of_the_backup() {
        let [from, to] = ["/state/api.db", "/mnt/backup"].map(Path::new);
        let error = |code| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        assert_eq!(place(&error(rusqlite::ffi::SQLITE_FULL), from, to), to);
        assert_eq!(place(&error(rusqlite::ffi::SQLITE_CORRUPT), from, to), from);
    }

    #[test]
    fn revisions_continue_above_every_run() {
        assert_eq!(next_ceiling(7, 9, 0), 9);
        assert_eq!(next_ceiling(1 << 50, 1 << 60, 1_800_000_000), 1 << 60);
        let (first, second) = (next_ceiling(7, 0, 1_800_000_000), next_ceiling(7, 0, 1_800_000_001));
        assert_eq!(second - first, 1 << PER_SECOND, "the same backup, a second later");
        assert!(next_ceiling(0, 0, u64::MAX) < 1 << 53, "a clock of any year");
    }
}
