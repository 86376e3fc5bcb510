//! Order: stage a volume and publish it in a pod. Records come first, so that whatever was begun can be undone, also
//! after a crash of this process.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use sampan_grpc::Code;
use sampan_plugins_control::{CsiMount, FromHelper};

use super::call::{call, failed, on_disk};
use super::drivers::Driver;
use super::failure::Failure;
use super::paths::{Staging, Target};
use super::record::Record;
use super::volume::Volume;
use super::{again, disk, keep, owner};
use crate::messages::csi::{Access, EXPAND, PUBLISH, Publish, STAGE, Stage, expand};
use crate::shared::Shared;

/// What became of it.
pub(super) async fn mount(shared: &Rc<Shared>, id: u64, mount: CsiMount) -> FromHelper {
    let target = Target::new(&mount.pod.uid, &mount.volume, mount.block);
    let connection = shared.connection();
    let done = carry_out(shared, mount, connection).await;
    // `Keep` may have come before the record.
    if let Some(target) = target.ok().filter(|target| is_forgotten(shared, target, connection)) {
        keep::undo(shared, target);
    }
    match done {
        Ok(path) => FromHelper::Mounted { id, path },
        Err(Failure { why, gone }) => FromHelper::Failed { id, why, gone },
    }
}

/// Whether the order has waited for longer than its daemon has lived, and the next one does not know the pod.
fn is_forgotten(shared: &Shared, target: &Target, connection: u64) -> bool {
    shared.connection() != connection && !shared.csi.kept.borrow().contains_key(&target.pod)
}

async fn carry_out(shared: &Rc<Shared>, mount: CsiMount, connection: u64) -> Result<String, Failure> {
    let volume = Volume::new(mount)?;
    let _order = shared.csi.order(&volume.driver, volume.weight())?;
    let _target = shared.csi.turns.target(&volume.target).await;
    let _volume = shared.csi.turns.volume(&volume.driver, &volume.handle).await;
    if is_forgotten(shared, &volume.target, connection) {
        return Err("the pod has gone".to_owned().into());
    }
    // The driver may have registered again meanwhile.
    let driver = shared.csi.driver(&volume.driver)?;
    let staging = (driver.capabilities.stage && !volume.inline)
        .then(|| Staging::new(&volume.driver, &volume.handle, &volume.target.volume, volume.target.block));
    let root = &shared.settings.root;
    let mounting = Mounting {
        shared,
        driver: &driver,
        access: volume.access(driver.capabilities),
        staged_at: staging.as_ref().map_or_else(String::new, |staging| text(&staging.path(root))),
        target: text(&volume.target.path(root)),
        volume: &volume,
        staging,
    };
    mounting.run().await
}

/// The daemon's configuration is UTF-8, and so are all names below the root.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

struct Mounting<'a> {
    shared: &'a Rc<Shared>,
    driver: &'a Driver,
    volume: &'a Volume,
    access: Access,
    /// `None`: this driver does not stage such a volume.
    staging: Option<Staging>,
    staged_at: String,
    target: String,
}

impl Mounting<'_> {
    async fn run(self) -> Result<String, Failure> {
        let (csi, volume) = (&self.shared.csi, self.volume);
        let request = self.publication();
        let mut hasher = DefaultHasher::new();
        request.hash(&mut hasher);
        let hash = hasher.finish();
        let is_needed = csi.mounts.borrow().needs(&volume.target, hash, volume.republish, Instant::now());
        if is_needed {
            self.publish(&request).await?;
            csi.mounts.borrow_mut().published(&volume.target, hash, volume.republish, Instant::now());
            if volume.republish {
                again::start(self.shared);
            }
        }
        self.grow().await?;
        Ok(self.target)
    }

    fn publication(&self) -> Vec<u8> {
        let volume = self.volume;
        let publish = Publish {
            handle: &volume.handle,
            staging: &self.staged_at,
            target: &self.target,
            access: &self.access,
            read_only: volume.read_only,
            publish_context: &volume.publish_context,
            secrets: &volume.publish_secrets,
            context: &volume.pod_context,
        };
        publish.written()
    }

    async fn publish(&self, request: &[u8]) -> Result<(), Failure> {
        let volume = self.volume;
        let target = volume.target.clone();
        let known = on_disk(self.shared, move |root| disk::read_target(root, &target)).await?;
        let mut published = is_published(known.as_ref(), volume)?;
        if known.is_none() {
            self.check_exclusive().await?;
            published = self.staging.is_none();
            self.record(published).await?;
        }
        if let Some(staging) = &self.staging {
            self.stage(staging).await?;
        }
        if !published {
            self.record(true).await?;
        }
        call(self.driver, PUBLISH, request).await.map_err(|status| failed(PUBLISH, &status))?;
        if let Some(group) = volume.owner(self.driver.capabilities) {
            owner::give(self.shared, self.driver, &volume.target, group, volume.on_root_mismatch).await?;
        }
        if known.is_none() {
            log::info!("{}: the CSI driver {} has published it", self.target, volume.driver);
        }
        Ok(())
    }

    /// Refuses a second pod of a volume with `ReadWriteOncePod` alone, as the kubelet does: the scheduler may not have
    /// seen the first one (K8s pkg/volume/util/operationexecutor, `GenerateMountVolumeFunc`).
    async fn check_exclusive(&self) -> Result<(), Failure> {
        let volume = self.volume;
        if !volume.is_exclusive() {
            return Ok(());
        }
        let (target, driver, handle) = (volume.target.clone(), volume.driver.clone(), volume.handle.clone());
        if on_disk(self.shared, move |root| disk::is_used(root, &driver, &handle, &target)).await? {
            let why = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";
            return Err(why.to_owned().into());
        }
        Ok(())
    }

    async fn record(&self, published: bool) -> Result<(), Failure> {
        let (target, record) = (self.volume.target.clone(), self.own_record(published));
        Ok(on_disk(self.shared, move |root| disk::write_target(root, &target, &record)).await?)
    }

    fn own_record(&self, published: bool) -> Record {
        let node = self.shared.csi.node.get().map_or("", String::as_str);
        Record::new(self.volume, node, published)
    }

    async fn stage(&self, staging: &Staging) -> Result<(), Failure> {
        let (volume, staged) = (self.volume, &self.shared.csi.staged);
        if staged.borrow().contains_key(&self.staged_at) {
            return Ok(());
        }
        let (place, record) = (staging.clone(), self.own_record(true));
        on_disk(self.shared, move |root| disk::write_staging(root, &place, &record)).await?;
        let request = Stage {
            handle: &volume.handle,
            staging: &self.staged_at,
            access: &self.access,
            publish_context: &volume.publish_context,
            secrets: &volume.stage_secrets,
            context: &volume.context,
        };
        call(self.driver, STAGE, &request.written()).await.map_err(|status| failed(STAGE, &status))?;
        staged.borrow_mut().insert(self.staged_at.clone(), ());
        Ok(())
    }

    /// Has the driver grow the file system, if the volume has become larger (`NodeExpand` in expander.go).
    async fn grow(&self) -> Result<(), Failure> {
        let (csi, volume) = (&self.shared.csi, self.volume);
        let Some(capacity) = volume.capacity.filter(|_| self.driver.capabilities.expand && !volume.inline) else {
            return Ok(());
        };
        let must_grow = csi.mounts.borrow().must_grow(&volume.target, capacity);
        if !must_grow {
            return Ok(());
        }
        let request = expand(&volume.handle, &self.target, capacity, &self.staged_at, &self.access);
        match call(self.driver, EXPAND, &request).await {
            // A driver that does not grow volumes in use.
            Err(status) if status.code == Code::FailedPrecondition => {
                log::warn!("{}: {}", self.target, failed(EXPAND, &status).why);
            }
            grown => drop(grown.map_err(|status| failed(EXPAND, &status))?),
        }
        csi.mounts.borrow_mut().has_grown(&volume.target, capacity);
        Ok(())
    }
}

/// Whether the volume is recorded as one that the driver may have published.
fn is_published(known: Option<&Record>, volume: &Volume) -> Result<bool, Failure> {
    match known {
        Some(known) if !known.is_of(&volume.driver, &volume.handle) => {
            // Its undoing would be lost.
            Err("another volume has this name in the pod, and must be unmounted first".to_owned().into())
        }
        known => Ok(known.is_some_and(|known| known.published)),
    }
}
