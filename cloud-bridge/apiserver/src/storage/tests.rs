//! What `storage` promises, case by case.

mod backup;
mod bodies_apart;
mod files;
mod history;
mod leases;
mod objects;
mod watchers;

use std::sync::Arc;
use std::time::Duration;

use apimachinery::key::ObjectKey;
use serde_json::{Value, json};

use super::*;

impl Most {
    const ALL: Self = Self::items(usize::MAX);

    /// This many items of any size.
    const fn items(items: usize) -> Self {
        Self { items, bytes: usize::MAX }
    }
}

const HISTORY: History = History { age: Duration::from_secs(600), rows: 10_000, bytes: 1 << 20, expiring: 1 << 20 };

fn open(dir: &tempfile::TempDir) -> Store {
    Store::open(&dir.path().join("api.db"), HISTORY, false).unwrap()
}

fn restored(dir: &tempfile::TempDir) -> Store {
    Store::open(&dir.path().join("api.db"), HISTORY, true).unwrap()
}

/// The files as a crash of the program leaves them, elsewhere.
fn crashed(dir: &tempfile::TempDir) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for name in ["api.db", "api.db-wal"] {
        std::fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
    }
    copy
}

fn number(stored: &Stored) -> u64 {
    stored.value()["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn object(name: &str, data: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "a", "uid": format!("uid-{name}")}, "data": data})
}

fn data(changes: &[Change]) -> Vec<(ChangeKind, String, String)> {
    changes
        .iter()
        .map(|c| (c.kind, c.object.key.name.clone(), c.object.value()["data"].as_str().unwrap_or_default().to_owned()))
        .collect()
}

/// Interest in all namespaces, without a limit.
fn all(filter: impl Fn(&Change) -> Option<View> + Send + 'static) -> Interest {
    Interest { namespace: None, filter: Box::new(filter), charge: Box::new(|_| Some(Arc::new(()))) }
}

fn lease(name: &str, holder: &str, time: u64) -> Value {
    json!({"metadata": {"name": name, "namespace": "a", "uid": name}, "spec": {"holderIdentity": holder, "renewTime": time}})
}
