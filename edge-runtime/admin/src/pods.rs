//! Which pods are to run here, and whether they are ready.

use edge_runtime::paths::Paths;
use edge_runtime::store::{Store, StoreError};

/// Returns the uid of each pod, and whether it is ready. Ended and ending pods are omitted: they are rightly not ready.
///
/// # Errors
/// The store cannot be read.
pub(crate) fn all(paths: &Paths) -> Result<Vec<(String, bool)>, StoreError> {
    if !paths.store().exists() {
        return Ok(Vec::new());
    }
    let (pods, _) = Store::open_shared(&paths.store())?.pods()?;
    let records = pods.into_iter().map(|pod| pod.record);
    let staying = records.filter(|record| record.terminal.is_none() && record.deletion.is_none());
    let ready = |status: Option<&str>| status == Some("True");
    Ok(staying
        .map(|record| (record.uid, ready(record.conditions.get("Ready").map(|ready| ready.status.as_str()))))
        .collect())
}
