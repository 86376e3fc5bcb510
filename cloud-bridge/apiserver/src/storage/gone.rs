//! Objects that must not return with a copy: deleted Nodes, whose certificates would be valid again, used join tokens and
//! deleted claim tokens. They are in a file beside the state file that only grows: a line for each, on the disk before the
//! deletion is.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};
use serde_json::Value;

use super::bodies;
use super::keeper::beside;
use super::stored::Stored;
use apimachinery::key::ObjectKey;
use apimachinery::meta;

/// Types of the Secrets of join tokens and claim tokens (`pki::token` and `pki::claim` of the bridge).
const TOKENS: [&str; 2] = ["sampan.dev/join-token", "sampan.dev/claim-token"];

/// Whether a deletion of this object is final.
pub(super) fn is_final(storage: &str, object: &Stored) -> bool {
    storage == "nodes" || (storage == "secrets" && is_token(object.value()))
}

fn is_token(secret: &Value) -> bool {
    TOKENS.iter().any(|kind| secret["type"] == *kind)
}

/// Namespace and name of each join token and claim token of a database.
pub(super) fn tokens(conn: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let mut statement = conn.prepare("SELECT ns, name, body FROM objects WHERE storage = 'secrets'")?;
    let (mut rows, mut tokens) = (statement.query([])?, Vec::new());
    while let Some(row) = rows.next()? {
        let secret = bodies::read(conn, row, 2)?.and_then(|body| serde_json::from_slice::<Value>(&body).ok());
        if secret.is_some_and(|secret| is_token(&secret)) {
            tokens.push((row.get(0)?, row.get(1)?));
        }
    }
    Ok(tokens)
}

/// Deletes an object from a database that no bridge uses.
pub(super) fn remove(conn: &Connection, storage: &str, namespace: &str, name: &str) -> rusqlite::Result<()> {
    for table in ["objects", "owners"] {
        let sql = format!("DELETE FROM {table} WHERE storage = ?1 AND ns = ?2 AND name = ?3");
        conn.execute(&sql, params![storage, namespace, name])?;
    }
    Ok(())
}

/// Path of the file.
fn file(path: &Path) -> PathBuf {
    beside(path, "gone")
}

/// Notes a deletion.
pub(super) fn note(path: &Path, storage: &str, key: &ObjectKey, object: &Value) -> io::Result<()> {
    let line = format!("{storage}\t{}\t{}\t{}\n", key.namespace, key.name, meta::text(object, "uid"));
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(file(path))?;
    file.write_all(line.as_bytes())?;
    file.sync_data()
}

/// Deletes the listed objects from a database; returns their number.
pub(super) fn delete(path: &Path, conn: &Connection) -> io::Result<usize> {
    let text = match std::fs::read(file(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        other => other?,
    };
    let mut count = 0;
    for line in String::from_utf8_lossy(&text).lines() {
        // A line that a power cut left incomplete belongs to a deletion that was not acknowledged.
        let [storage, namespace, name, uid] = line.split('\t').collect::<Vec<_>>()[..] else { continue };
        let sql = "DELETE FROM objects WHERE storage = ?1 AND ns = ?2 AND name = ?3 AND uid = ?4";
        let deleted = conn.execute(sql, params![storage, namespace, name, uid]).map_err(io::Error::other)?;
        if deleted > 0 {
            let sql = "DELETE FROM owners WHERE storage = ?1 AND ns = ?2 AND name = ?3";
            conn.execute(sql, params![storage, namespace, name]).map_err(io::Error::other)?;
        }
        count += deleted;
    }
    Ok(count)
}
