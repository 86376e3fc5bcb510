//! Runs `nft` with what was decided.

use std::path::{Path, PathBuf};

use super::rules::Tables;
use super::world::{family, remove, remove_neighbours, table};
use crate::net::{NetError, Subnet, firewall};

/// Replaces what is there, in one transaction. Then the table of neighbours; why that could not be, if so.
///
/// # Errors
/// [`NetError::Firewall`]; the kernel holds what it held.
pub async fn replace(nft: PathBuf, tables: Tables) -> Result<Option<NetError>, NetError> {
    firewall::run(&nft, &tables.script).await?;
    Ok(firewall::run(&nft, &tables.neighbours).await.err())
}

/// Whether these tables are there, the one of neighbours not asked for.
pub async fn has(nft: PathBuf, bridge: String, subnets: Vec<Subnet>, mark: String) -> bool {
    for subnet in subnets {
        let family = family(!subnet.is_ipv4());
        if firewall::list(&nft, family, &table(&bridge), &mark).await.is_none() {
            return false;
        }
    }
    true
}

/// Deletes the tables, also those of a family that the node no longer has; fine where there are none.
///
/// # Errors
/// [`NetError::Firewall`].
pub async fn clear(nft: &Path, bridge: &str) -> Result<(), NetError> {
    // Not every kernel knows these two.
    for script in [remove_neighbours(bridge), remove(bridge, &[true])] {
        if let Err(error) = firewall::run(nft, &script).await {
            log::debug!("no table of policies to delete: {error}");
        }
    }
    firewall::run(nft, &remove(bridge, &[false])).await
}
