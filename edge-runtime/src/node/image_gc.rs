//! Images that nobody needs: which go when, and the helper that deletes their files. The record of an image goes in
//! one commit here, where every use of images is known; its layers follow.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::Duration;

use super::Node;
use super::sources::News;
use crate::eviction::Signal;
use crate::image::gc;
use crate::image::layers::Layers;
use crate::image::{ImageRecord, Reference};
use crate::pod::clock::Mono;
use crate::pod::record::PodSource;
use crate::pod::spec::containers;
use crate::store::StoreError;
use crate::sys::program;

/// The kubelet's `ImageGCPeriod`.
const PERIOD: Duration = Duration::from_secs(300);
/// With nothing to remove the disk is looked at again after this, as it may be short for another reason.
const FRUITLESS: Duration = Duration::from_secs(60);

/// Image collection.
#[derive(Default)]
pub(super) struct ImageGc {
    next: Option<Mono>,
    /// For want of disk: not again before.
    next_all: Option<Mono>,
    running: bool,
    /// What the last helper for want of disk took, until nothing was left to take.
    taken: Option<Taken>,
    /// Seconds of wall time at which an image was last seen in use.
    used_at: BTreeMap<String, i64>,
    failed: bool,
}

/// Steps of clearing up for want of disk, the later the dearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Taken {
    /// Layers of no image.
    Orphans,
    /// Downloads that wait for another try, too.
    Downloads,
}

impl Node {
    /// Clears what an earlier run left half-made, and ends the collection that it did not end.
    pub(super) fn sweep_images(&mut self) {
        if Layers::new(&self.paths).incoming().has_entries() {
            self.run_sweep("usual");
        }
    }

    /// Frees the images' file system down to the low mark when it is above the high one.
    pub(super) fn collect_images_by_mark(&mut self, now: Mono) -> Result<(), StoreError> {
        let policy = &self.config.images;
        let Some(space) = self.observations().get(Signal::ImageFsAvailable).filter(|space| space.capacity > 0) else {
            return Ok(());
        };
        let used = 100 - u64::min(space.available.saturating_mul(100) / space.capacity, 100);
        if policy.gc_high_percent >= 100 || used < policy.gc_high_percent {
            self.image_gc.failed = false;
            return Ok(());
        }
        if self.image_gc.running || self.image_gc.next.is_some_and(|next| now < next) {
            return Ok(());
        }
        self.image_gc.next = Some(now.after(PERIOD));
        let free = space.capacity / 100 * (100 - policy.gc_low_percent);
        let wanted = free.saturating_sub(space.available);
        let freed = self.collect_images(wanted)?;
        let layers = Layers::new(&self.paths);
        let idle = !self.image_gc.running && !self.doubt.any();
        if idle && gc::has_leftovers(&layers, &self.store.layers_in_use()?) {
            self.run_sweep("short");
        }
        if freed >= wanted {
            self.image_gc.failed = false;
            return Ok(());
        }
        let message = format!(
            "Insufficient free disk space on the node's image filesystem ({used}% of {} used). Failed to free \
             sufficient space by deleting unused images (freed {freed} bytes). Investigate disk usage, as it could be \
             used by active images, logs, volumes, or other data.",
            crate::pod::quantity::binary(space.capacity)
        );
        self.node_event(true, "FreeDiskSpaceFailed", &message)?;
        // As the kubelet: one failure may be bad luck.
        if std::mem::replace(&mut self.image_gc.failed, true) {
            self.node_event(true, "ImageGCFailed", &message)?;
        }
        Ok(())
    }

    /// The node is short of disk: whether images are on their way out, so that no pod has to go yet.
    pub(super) fn collect_all_images(&mut self, now: Mono) -> Result<bool, StoreError> {
        if self.image_gc.running {
            return Ok(true);
        }
        if self.image_gc.next_all.is_some_and(|next| now < next) {
            return Ok(false);
        }
        // It takes more with each second; what it has so far is kept for the next try.
        self.stop_pulls("the node is short of disk; the pull goes on when it is not");
        self.collect_images(u64::MAX)?;
        if !self.image_gc.running {
            self.collect_leftovers()?;
        }
        if !self.image_gc.running {
            self.image_gc.taken = None;
            self.image_gc.next_all = Some(now.after(FRUITLESS));
        }
        Ok(self.image_gc.running)
    }

    /// With no image left to remove: what a collection or a pull that was cut short left.
    fn collect_leftovers(&mut self) -> Result<(), StoreError> {
        let layers = Layers::new(&self.paths);
        if self.doubt.any() || !gc::has_leftovers(&layers, &self.store.layers_in_use()?) {
            return Ok(());
        }
        let (next, word) = match self.image_gc.taken {
            None => (Taken::Orphans, "short"),
            Some(Taken::Orphans) => (Taken::Downloads, "shortest"),
            Some(Taken::Downloads) => return Ok(()),
        };
        self.image_gc.taken = Some(next);
        self.run_sweep(word);
        Ok(())
    }

    /// Forgets the longest unused images and has their files deleted; how many bytes were chosen.
    fn collect_images(&mut self, bytes: u64) -> Result<u64, StoreError> {
        // Which images are in use nobody can tell while pods may be missing.
        if self.doubt.any() {
            return Ok(0);
        }
        let mut images = self.store.images()?;
        // Damaged ones left the store, but not the disk.
        let layers = Layers::new(&self.paths);
        let mut damaged = layers.records();
        damaged.retain(|record| images.iter().all(|image| image.id != record.id));
        let wall = self.wall().as_second();
        let used = self.images_in_use(&damaged);
        images.append(&mut damaged);
        self.image_gc.used_at.retain(|id, _| images.iter().any(|image| image.id == *id));
        self.image_gc.used_at.extend(used.iter().map(|id| (id.clone(), wall)));
        let min_age = i64::try_from(self.config.images.gc_min_age.as_secs()).unwrap_or(i64::MAX);
        let rules = gc::Rules { used: &used, used_at: &self.image_gc.used_at, min_age, now: wall };
        let chosen = gc::select_unused(&images, &rules, bytes);
        if chosen.is_empty() {
            return Ok(0);
        }
        let freed = images.iter().filter(|image| chosen.contains(&image.id)).map(|image| image.size).sum();
        for image in images.iter().filter(|image| chosen.contains(&image.id)) {
            log::info!("removing unused image {} {:?}", image.id, image.references);
            if let Err(error) = layers.drop_record(image) {
                // Its layers are then found as those of no image.
                log::warn!("{error}");
            }
        }
        self.store.write_durable(|writer| chosen.iter().try_for_each(|id| writer.image_remove(id)))?;
        self.run_sweep("short");
        self.node_status.images_changed();
        Ok(freed)
    }

    /// Runs beside everything else, also beside pulls.
    fn run_sweep(&mut self, how: &'static str) {
        self.image_gc.running = true;
        let (news, root) = (self.senders.news.clone(), self.paths.root().to_path_buf());
        self.executor
            .spawn(async move {
                let mut helper = program::itself("images");
                helper.arg("--collect").arg(how).arg("--root").arg(root).stderr(Stdio::inherit());
                let result = crate::image::spawn::talk(helper, &[]).await.map(drop).map_err(|error| error.to_string());
                let _ = news.send(News::Collected(result)).await;
            })
            .detach();
    }

    pub(super) fn collected(&mut self, result: Result<(), String>) -> Result<(), StoreError> {
        self.image_gc.running = false;
        self.node_status.look_again(self.mono());
        match result {
            Ok(()) => Ok(()),
            Err(error) => self.node_event(true, "ImageGCFailed", &error),
        }
    }

    /// Ids of images of all containers that run or will, of static pods, and pinned ones.
    fn images_in_use(&self, damaged: &[ImageRecord]) -> BTreeSet<String> {
        let mut names: BTreeSet<&str> = self.config.images.pinned.iter().map(String::as_str).collect();
        for (_, entry) in self.pods.iter() {
            if entry.record.terminal.is_some() && entry.record.source != PodSource::Static {
                continue;
            }
            names.extend(entry.record.containers.values().map(|container| container.image_id.as_str()));
            names.extend(entry.record.image_volumes.values().map(String::as_str));
            let Some(spec) = &entry.pod.spec else { continue };
            // As the kubelet's handleImageVolumes, but also before it is mounted.
            let volumes = spec.volumes.iter().flatten().filter_map(|volume| volume.image.as_ref());
            names.extend(volumes.filter_map(|image| image.reference.as_deref()));
            names.extend(containers(spec).filter_map(|c| c.image.as_deref()));
            names.extend(spec.ephemeral_containers.iter().flatten().filter_map(|c| c.image.as_deref()));
        }
        let of_damaged = |name: &str| {
            let full = Reference::parse(name).map(|name| name.to_string()).unwrap_or_default();
            let is_it = |image: &&ImageRecord| image.references.iter().any(|known| *known == full || known == name);
            damaged.iter().find(is_it).map(|image| image.id.clone())
        };
        let mut used: BTreeSet<String> = names.iter().filter_map(|name| of_damaged(name)).collect();
        used.extend(names.into_iter().filter_map(|name| Some(self.image_record(name, name)?.id)));
        used
    }
}
