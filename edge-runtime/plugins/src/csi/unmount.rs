//! Order: unpublish a volume of a pod, and unstage it when no pod has it any more. The record of the last pod stays until
//! both are done: an order that fails in between is repeated from the beginning, which CSI allows.

use std::rc::Rc;

use sampan_plugins_control::FromHelper;

use super::call::{call, failed, on_disk};
use super::disk;
use super::drivers::Driver;
use super::failure::Failure;
use super::paths::Target;
use super::record::Record;
use crate::messages::csi::{UNPUBLISH, UNSTAGE, undo};
use crate::shared::Shared;

/// What became of it.
pub(super) async fn unmount(shared: &Rc<Shared>, id: u64, pod: &str, volume: &str) -> FromHelper {
    let mut done = Ok(());
    // The daemon need not know the mode of a volume that has gone.
    for block in [false, true] {
        // No volume has such a name. As a failure it would be repeated, and its pod would never go.
        let Ok(target) = Target::new(pod, volume, block) else { continue };
        done = undo_target(shared, &target).await;
        if done.is_err() {
            break;
        }
    }
    match done {
        Ok(()) => FromHelper::Unmounted { id },
        Err(Failure { why, gone }) => FromHelper::Failed { id, why, gone },
    }
}

/// Unpublishes the volume of a pod. Nothing is to do without its record.
///
/// # Errors
/// The driver has failed or is away: to be repeated.
pub(super) async fn undo_target(shared: &Rc<Shared>, target: &Target) -> Result<(), Failure> {
    let csi = &shared.csi;
    let _target = csi.turns.target(target).await;
    let wanted = target.clone();
    let Some(record) = on_disk(shared, move |root| disk::read_target(root, &wanted)).await? else {
        return Ok(());
    };
    let _order = csi.order(&record.driver, 0)?;
    let _volume = csi.turns.volume(&record.driver, &record.handle).await;
    let driver = csi.driver(&record.driver)?;
    csi.mounts.borrow_mut().remove(target);
    if record.published {
        let path = target.path(&shared.settings.root);
        let request = undo(&record.handle, &path.to_string_lossy());
        call(&driver, UNPUBLISH, &request).await.map_err(|status| failed(UNPUBLISH, &status))?;
        log::info!("{}: the CSI driver {} has unpublished it", path.display(), record.driver);
    }
    let (cleared, wanted) = (target.clone(), record.clone());
    let is_used = on_disk(shared, move |root| {
        disk::clear_target(root, &cleared)?;
        disk::is_used(root, &wanted.driver, &wanted.handle, &cleared)
    });
    if !is_used.await? {
        unstage(shared, &driver, record).await?;
    }
    let done = target.clone();
    Ok(on_disk(shared, move |root| disk::forget_target(root, &done)).await?)
}

/// Unstages a volume that no pod has. The caller has the turn of the volume.
async fn unstage(shared: &Shared, driver: &Driver, record: Record) -> Result<(), Failure> {
    let Record { driver: name, handle, .. } = record;
    let of = handle.clone();
    for staging in on_disk(shared, move |root| disk::staged(root, &name, &of)).await? {
        let path = staging.path(&shared.settings.root).to_string_lossy().into_owned();
        shared.csi.staged.borrow_mut().remove(&path);
        // One that has lost the capability has nothing staged.
        if driver.capabilities.stage {
            let request = undo(&handle, &path);
            call(driver, UNSTAGE, &request).await.map_err(|status| failed(UNSTAGE, &status))?;
            log::info!("{path}: the CSI driver {} has unstaged it", driver.name);
        }
        on_disk(shared, move |root| disk::remove_staging(root, &staging)).await?;
    }
    Ok(())
}
