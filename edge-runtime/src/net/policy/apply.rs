//! Runs `nft` with what was decided.

use std::path::{Path, PathBuf};

use super::rules::Tables;
use super::world::{remove, remove_neighbours, table};
use crate::net::{NetError, Subnet, firewall};

/// Replaces what is there, in one transaction with the table of neighbours, or, unless `together`, before it. Then that
/// table may be refused; why, if so.
///
/// # Errors
/// [`NetError::Firewall`]; the kernel holds what it held.
pub async fn replace(nft: PathBuf, tables: Tables, together: bool) -> Result<Option<NetError>, NetError> {
    // A pod waits for it, and each run is a process.
    if together && firewall::run(&nft, &format!("{}\n{}", tables.script, tables.neighbours)).await.is_ok() {
        return Ok(None);
    }
    firewall::run(&nft, &tables.script).await?;
    Ok(firewall::run(&nft, &tables.neighbours).await.err())
}

/// Whether these tables are there, the one of neighbours not asked for.
pub fn has(bridge: &str, subnets: &[Subnet], mark: &str) -> bool {
    firewall::has_chains(&table(bridge), subnets.iter().map(|subnet| (!subnet.is_ipv4(), mark)))
}

/// Deletes the tables, also those of a family that the node no longer has. Does not run `nft` without such tables.
///
/// # Errors
/// [`NetError::Firewall`].
pub async fn clear(nft: &Path, bridge: &str) -> Result<(), NetError> {
    if firewall::has_no(&table(bridge)) {
        return Ok(());
    }
    // Not every kernel knows these two.
    for script in [remove_neighbours(bridge), remove(bridge, &[true])] {
        if let Err(error) = firewall::run(nft, &script).await {
            log::debug!("no table of policies to delete: {error}");
        }
    }
    firewall::run(nft, &remove(bridge, &[false])).await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::net::namespaces::tests::isolate;

    /// A program in place of `nft` and how often it ran. It refuses what `refused`, a pattern of the shell, is for.
    fn counting(dir: &Path, refused: &str) -> (PathBuf, impl Fn() -> usize) {
        let (program, runs) = (dir.join("nft"), dir.join("runs"));
        let script =
            format!("#!/bin/sh\ntext=$(cat)\necho >>{}\ncase $text in {refused}) exit 1;; esac\n", runs.display());
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        (program, move || std::fs::read_to_string(&runs).map_or(0, |text| text.lines().count()))
    }

    fn tables() -> Tables {
        let (script, neighbours) = ("table ip a {\n}\n".into(), "table bridge a {\n}\n".into());
        Tables { script, neighbours, mark: String::new(), denied: BTreeMap::new() }
    }

    #[test]
    fn all_tables_are_replaced_in_one_run() {
        let dir = tempfile::tempdir().unwrap();
        let (nft, runs) = counting(dir.path(), "nothing");
        assert!(smol::block_on(replace(nft, tables(), true)).unwrap().is_none());
        assert_eq!(runs(), 1);
    }

    #[test]
    fn kernel_without_the_table_of_neighbours_gets_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let (nft, runs) = counting(dir.path(), "*bridge*");
        assert!(smol::block_on(replace(nft.clone(), tables(), true)).unwrap().is_some());
        assert_eq!(runs(), 3);
        assert!(smol::block_on(replace(nft, tables(), false)).unwrap().is_some());
        assert_eq!(runs(), 5, "once it is known, two");
    }

    #[test]
    fn missing_tables_are_cleared_without_nft() {
        if !isolate() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (nft, runs) = counting(dir.path(), "nothing");
        smol::block_on(clear(&nft, "b0")).unwrap();
        assert_eq!(runs(), 0);
        smol::block_on(firewall::run(Path::new("nft"), &format!("add table ip {}", table("b0")))).unwrap();
        smol::block_on(clear(&nft, "b0")).unwrap();
        assert_eq!(runs(), 3);
    }
}
