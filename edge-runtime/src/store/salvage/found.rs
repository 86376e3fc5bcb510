//! Finds the table of a row of a damaged store by its shape and content, and inserts it into another store. A malformed
//! row is dropped; but a pod's row is kept for its name, because the pod may still run.

use rusqlite::{Connection, ToSql};
use serde::de::{DeserializeOwned, IgnoredAny};

use super::btree::{Column, Row};
use crate::pod::record::PodRecord;
use crate::pod::token::Held;
use crate::store::facts::Fact;
use crate::store::image_record::ImageRecord;

/// Longest text that is a name.
const NAME_LIMIT: usize = 512;

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) enum Found {
    Fact { key: String, value: String },
    Object { kind: String, namespace: String, name: String, uid: String, body: String },
    Pod { uid: String, record: String, manifest: Option<String> },
    Image { id: String, record: String },
    Reference { reference: String, image: String },
    Token { uid: String, name: String, record: String },
    Device { uid: String, record: String, written: i64 },
    Message { id: i64, rule: String, class: i64, expires: i64, bytes: i64, record: String },
    Report { id: i64, subject: Option<String>, report: String },
}

impl Found {
    pub(super) fn of(row: Row) -> Option<Self> {
        use Column::{Integer, Null, Other, Text};
        match (row.id, <[Column; 6]>::try_from(padded(row.columns)?).ok()?) {
            (None, [Text(kind), Text(namespace), Text(name), Text(uid), Text(_), body]) => {
                let body = if let Text(body) = body { body } else { String::new() };
                let readable = parses::<IgnoredAny>(&body) || (body.is_empty() && kind == "Secret");
                let named = is_name(&kind) && is_name(&name) && (namespace.is_empty() || is_name(&namespace));
                (named && (readable || kind == "Pod")).then_some(Self::Object { kind, namespace, name, uid, body })
            }
            (None, [Text(uid), Text(name), Text(record), Null, Null, Null]) if parses::<Held>(&record) => {
                Some(Self::Token { uid, name, record })
            }
            (None, [Text(uid), Text(record), Integer(written), Null, Null, Null]) => {
                (is_name(&uid) && parses::<IgnoredAny>(&record)).then_some(Self::Device { uid, record, written })
            }
            (None, [Text(key), Text(text), Null, Null, Null, Null]) => Self::pair(key, text),
            (None, [Text(uid), record, manifest @ (Null | Text(_) | Other), Null, Null, Null]) => {
                Self::pod(uid, record, manifest)
            }
            (Some(id), [Null, Text(rule), Integer(class), Integer(expires), Integer(_), Text(record)]) => {
                let bytes = i64::try_from(record.len()).ok()?;
                let sound = is_name(&rule) && (0..=9).contains(&class) && parses::<IgnoredAny>(&record);
                sound.then_some(Self::Message { id, rule, class, expires, bytes, record })
            }
            (Some(id), [Null, subject @ (Null | Text(_)), Text(report), Null | Integer(_), Null, Null]) => {
                let subject = if let Text(subject) = subject { Some(subject) } else { None };
                // It may be from a newer version: then that version must send it.
                parses::<IgnoredAny>(&report).then_some(Self::Report { id, subject, report })
            }
            _ => None,
        }
    }

    /// The tables of two columns, and pods without a manifest.
    fn pair(key: String, text: String) -> Option<Self> {
        if serde_json::from_str::<ImageRecord>(&text).is_ok_and(|image| image.id == key) {
            return Some(Self::Image { id: key, record: text });
        }
        if Fact::is_key(&key) {
            return Some(Self::Fact { key, value: text });
        }
        if text.starts_with("sha256:") && text.len() < NAME_LIMIT {
            return Some(Self::Reference { reference: key, image: text });
        }
        Self::pod(key, Column::Text(text), Column::Null)
    }

    fn pod(uid: String, record: Column, manifest: Column) -> Option<Self> {
        let text = |column| if let Column::Text(text) = column { text } else { String::new() };
        let (record, manifest) = (text(record), if manifest == Column::Null { None } else { Some(text(manifest)) });
        let sound = serde_json::from_str::<PodRecord>(&record).is_ok_and(|record| record.uid == uid);
        // The key of a damaged row of another table is not a uid.
        let uid_like = uid.len() >= 32 && uid.len() <= 64 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        (sound || uid_like).then_some(Self::Pod { uid, record, manifest })
    }

    /// The pod it belongs to, if any.
    pub(super) fn pod_uid(&self) -> Option<&str> {
        match self {
            Self::Object { kind, uid, .. } if kind == "Pod" => Some(uid),
            Self::Pod { uid, .. } | Self::Token { uid, .. } => Some(uid),
            _ => None,
        }
    }

    /// Inserts it unless the store has one of that name; returns whether it did. Objects lose their digest, because
    /// damage inside a text does not show: the next list sends each of them again.
    pub(super) fn add(&self, db: &Connection) -> rusqlite::Result<bool> {
        let (table, columns, values): (_, _, &[&dyn ToSql]) = match self {
            Self::Fact { key, value } => ("facts", "key, value", &[key, value]),
            Self::Object { kind, namespace, name, uid, body } => {
                ("objects", "kind, namespace, name, uid, body, digest", &[kind, namespace, name, uid, body, &""])
            }
            Self::Pod { uid, record, manifest } => ("pods", "uid, record, manifest", &[uid, record, manifest]),
            Self::Image { id, record } => ("images", "id, record", &[id, record]),
            Self::Reference { reference, image } => ("image_references", "reference, image", &[reference, image]),
            Self::Device { uid, record, written } => ("device_twins", "uid, record, written", &[uid, record, written]),
            Self::Message { id, rule, class, expires, bytes, record } => (
                "device_messages",
                "id, rule, class, expires, bytes, record",
                &[id, rule, class, expires, bytes, record],
            ),
            Self::Token { uid, name, record } => ("tokens", "uid, name, record", &[uid, name, record]),
            Self::Report { id, subject, report } => ("outbox", "id, subject, report", &[id, subject, report]),
        };
        let marks = vec!["?"; values.len()].join(", ");
        let sql = format!("INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})");
        db.prepare_cached(&sql)?.execute(values).map(|rows| rows > 0)
    }
}

fn padded(mut columns: Vec<Column>) -> Option<Vec<Column>> {
    if columns.len() < 2 || columns.len() > 6 {
        return None;
    }
    columns.resize(6, Column::Null);
    Some(columns)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_LIMIT && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn parses<T: DeserializeOwned>(text: &str) -> bool {
    serde_json::from_str::<T>(text).is_ok()
}
