//! Opens the store: in memory if the disk cannot be written. Handles damage, a power cut and a boot.

use crate::image::layers::Layers;
use crate::image::settle::settle;
use crate::paths::Paths;
use crate::store::{Fact, Opened, Quarantined, Store, StoreError};

/// In the environment of a daemon that has found that its disk takes nothing.
pub const STORE_IN_MEMORY: &str = "EDGE_RUNTIME_STORE_IN_MEMORY";

/// An event about the node: whether it warns, reason and message.
pub(super) type Note = (bool, &'static str, String);

/// Opens the store with which the node begins, and returns the notes to report about it.
pub(super) fn open(paths: &Paths, node_name: &str, boot_id: &str) -> Result<(Store, Vec<Note>), StoreError> {
    let opened = open_or_remember(paths)?;
    let mut store = opened.store;
    let mut notes = Vec::new();
    if let Some(Quarantined { aside, why, rows }) = &opened.quarantined {
        let aside = aside.display();
        let text = format!(
            "the store was damaged ({why}) and is now {aside}; {rows} rows of it and of its copy are used until the \
             cloud has sent what there is"
        );
        log::error!("{text}");
        notes.push((true, "StoreDamaged", text));
    }
    if store.is_in_memory() {
        let text =
            "the disk of the node's state takes nothing: what changes is kept in memory, and lost with the power";
        notes.push((true, "StoreInMemory", text.to_owned()));
    }
    settle_images(&mut store, paths);
    notes.extend(take_boot(&mut store, node_name, boot_id)?);
    Ok((store, notes))
}

/// Opens the store on disk. If the disk cannot be written, loads its readable part into memory.
fn open_or_remember(paths: &Paths) -> Result<Opened, StoreError> {
    let path = paths.store();
    let why = match std::env::var_os(STORE_IN_MEMORY) {
        Some(_) => "it could not be written".to_owned(),
        None => match Store::open(&path) {
            Err(error) if error.is_of_disk() && !error.is_full() => error.to_string(),
            done => return done,
        },
    };
    log::error!("{why}: the node goes on with a copy of {} in memory until the disk takes it again", path.display());
    Ok(Opened { store: Store::remember(&path)?, quarantined: None })
}

/// A power cut may have removed part of a layer: damaged images are deleted, so that they are pulled again. And images
/// that a lost store knew are restored from the records beside their layers.
fn settle_images(store: &mut Store, paths: &Paths) {
    match settle(store, &Layers::new(paths)) {
        Ok(settled) => {
            for image in settled.broken {
                log::error!("image {image} is damaged on disk; it will be pulled again");
            }
            for image in settled.restored {
                log::warn!("image {image} was not in the store; it is known again");
            }
        }
        Err(error) => log::error!("images could not be checked: {error}"),
    }
}

/// After a boot earlier reports are not valid any more.
fn take_boot(store: &mut Store, node_name: &str, boot_id: &str) -> Result<Option<Note>, StoreError> {
    let before = store.fact(Fact::BootId)?;
    if before.as_deref() == Some(boot_id) {
        return Ok(None);
    }
    store.write(|writer| {
        writer.drop_statuses()?;
        writer.forget_waiting()?;
        writer.set_fact(Fact::BootId, boot_id)
    })?;
    let text = format!("Node {node_name} has been rebooted, boot id: {boot_id}");
    Ok(before.map(|_| (true, "Rebooted", text)))
}

#[cfg(test)]
mod tests {
    use edge_protocol::message::Report;

    use super::*;

    #[test]
    fn only_another_boot_drops_statuses_and_is_reported() {
        let mut store = Store::in_memory().unwrap();
        assert_eq!(take_boot(&mut store, "n", "one").unwrap(), None, "a new node has had no boot before");
        let text = String::new;
        let status =
            Report::PodStatus { namespace: text(), name: text(), uid: text(), status: serde_json::Value::Null };
        store.write(|writer| writer.report(&status)).unwrap();
        assert_eq!(take_boot(&mut store, "n", "one").unwrap(), None);
        assert_eq!(store.outbox().unwrap().len(), 1, "only the daemon has started again");
        let note = (true, "Rebooted", "Node n has been rebooted, boot id: two".to_owned());
        assert_eq!(take_boot(&mut store, "n", "two").unwrap(), Some(note));
        assert!(store.outbox().unwrap().is_empty());
        assert_eq!(take_boot(&mut store, "n", "two").unwrap(), None, "once");
    }
}
