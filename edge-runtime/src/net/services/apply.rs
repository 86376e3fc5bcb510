//! Runs `nft` with what was decided.

use std::path::PathBuf;

use super::super::{NetError, firewall};
use super::table::{self, Change};

/// Runs a change, in one transaction.
///
/// # Errors
/// [`NetError::Firewall`]; the kernel holds what it held.
pub async fn run(nft: PathBuf, change: Change) -> Result<(), NetError> {
    firewall::run(&nft, &change.script).await
}

/// Whether all these chains are there.
pub async fn has(nft: PathBuf, bridge: String, marks: Vec<(&'static str, String)>) -> bool {
    let table = super::rules::table(&bridge);
    for (family, mark) in marks {
        if firewall::list(&nft, family, &table, &mark).await.is_none() {
            return false;
        }
    }
    true
}

/// Deletes the tables, also those of a family that the node no longer has; fine where there are none.
pub async fn remove(nft: PathBuf, bridge: String) -> Result<(), NetError> {
    if let Err(error) = firewall::run(&nft, &table::remove(&bridge, &[true])).await {
        log::debug!("no table of IPv6 to delete: {error}");
    }
    firewall::run(&nft, &table::remove(&bridge, &[false])).await
}
