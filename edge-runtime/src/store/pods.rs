//! State of each pod at runtime, and the manifest it runs by.

use super::{Store, StoreError, Writer};
use crate::pod::record::PodRecord;

/// One pod as stored. `manifest` is the Kubernetes object the pod runs by: stored beside the record so that a pod whose
/// object is already gone can still be stopped as its manifest says.
pub struct StoredPod {
    pub record: PodRecord,
    pub manifest: serde_json::Value,
}

/// Uids of pods whose rows do not parse, and why.
type BadRows = Vec<(String, StoreError)>;

impl Store {
    /// Every stored pod. A row that does not parse is left out and named in the second list, by the pod's uid.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn pods(&self) -> Result<(Vec<StoredPod>, BadRows), StoreError> {
        let sql = "SELECT uid, record, manifest FROM pods";
        let rows: Vec<(String, String, Option<String>)> =
            self.all(sql, &[], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for (uid, record, manifest) in rows {
            let what = format!("pod {uid}");
            let parsed = self.parse(&what, &record).and_then(|record| {
                let manifest = manifest.map(|text| self.parse(&what, &text)).transpose()?;
                Ok(StoredPod { record, manifest: manifest.unwrap_or(serde_json::Value::Null) })
            });
            match parsed {
                Ok(pod) => good.push(pod),
                Err(error) => bad.push((uid, error)),
            }
        }
        Ok((good, bad))
    }

    /// Returns the record of one pod; `None` also if it does not parse.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn pod_record(&self, uid: &str) -> Result<Option<PodRecord>, StoreError> {
        let text: Option<String> = self.one("SELECT record FROM pods WHERE uid = ?1", &[&uid])?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }
}

impl Writer<'_> {
    /// # Errors
    /// SQLite fails or the record cannot be written as JSON.
    pub fn put_pod(&self, record: &PodRecord) -> Result<(), StoreError> {
        let text = self.json("pod record", record)?;
        self.execute(
            "INSERT INTO pods (uid, record) VALUES (?1, ?2) ON CONFLICT (uid) DO UPDATE SET record = ?2",
            &[&record.uid, &text],
        )
        .map(drop)
    }

    /// The manifest changes rarely, the record often: two writes, so that the often one is small.
    /// The pod's record must be there.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn put_manifest(&self, uid: &str, manifest: &serde_json::Value) -> Result<(), StoreError> {
        self.execute("UPDATE pods SET manifest = ?2 WHERE uid = ?1", &[&uid, &manifest.to_string()]).map(drop)
    }

    /// # Errors
    /// SQLite fails.
    pub fn forget_pod(&self, uid: &str) -> Result<(), StoreError> {
        self.execute("DELETE FROM tokens WHERE uid = ?1", &[&uid])?;
        self.execute("DELETE FROM pods WHERE uid = ?1", &[&uid]).map(drop)
    }
}
