//! Removal of unused images: which and when, and the helper that deletes their files. The record of an image goes in
//! one commit here, where every use of images is known; its layers follow.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;

use super::context::Context;
use super::pulls::Pulls;
use super::sources::News;
use crate::eviction::{Observation, Observations, Signal};
use crate::image::Reference;
use crate::image::gc;
use crate::image::layers::Layers;
use crate::pod::clock::Mono;
use crate::pod::record::PodSource;
use crate::pod::spec::containers;
use crate::store::StoreError;
use crate::store::image_record::ImageRecord;
use crate::sys::gather::Gather;
use crate::sys::program;

/// The kubelet's `ImageGCPeriod`.
const PERIOD: Duration = Duration::from_secs(300);
/// Pause if there was nothing to remove: the shortage may have another cause.
const FRUITLESS: Duration = Duration::from_secs(60);
/// Time for which evictions wait for the helper: on a medium that hangs, it may take hours until it is ended.
const PATIENCE: Duration = Duration::from_mins(10);

/// Image collection.
#[derive(Default)]
pub(super) struct ImageGc {
    next: Option<Mono>,
    /// Earliest time of the next sweep in a disk shortage.
    next_all: Option<Mono>,
    /// When the helper at work has begun.
    running: Option<Mono>,
    /// What the last helper in a disk shortage removed, until nothing was left to remove.
    taken: Option<Taken>,
    /// Seconds of wall time at which an image was last seen in use.
    used_at: BTreeMap<String, i64>,
    failed: bool,
}

/// Steps of a cleanup in a disk shortage; later steps cost more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Taken {
    /// Layers of no image.
    Orphans,
    /// Downloads that wait for another try, too.
    Downloads,
}

impl Taken {
    /// The next step, and the helper's word for it; `None` after the last one.
    fn after(last: Option<Self>) -> Option<(Self, &'static str)> {
        match last {
            None => Some((Self::Orphans, "short")),
            Some(Self::Orphans) => Some((Self::Downloads, "shortest")),
            Some(Self::Downloads) => None,
        }
    }
}

impl ImageGc {
    /// Clears what an earlier run left half-made, and ends the collection that it did not end.
    pub(super) fn at_start(&mut self, cx: &Context) {
        if Layers::new(&cx.paths).incoming().has_entries() {
            self.run_sweep(cx, "usual");
        }
    }

    /// Frees the images' file system down to the low mark when it is above the high one.
    pub(super) fn by_mark(&mut self, cx: &mut Context, seen: &Observations, now: Mono) -> Result<(), StoreError> {
        let config = Rc::clone(&cx.config);
        let policy = &config.images;
        let Some(space) = seen.get(Signal::ImageFsAvailable).filter(|space| space.capacity > 0) else {
            return Ok(());
        };
        let used = used_percent(space);
        if *policy.gc_high_percent >= 100 || used < *policy.gc_high_percent {
            self.failed = false;
            return Ok(());
        }
        if self.running.is_some() || self.next.is_some_and(|next| now < next) {
            return Ok(());
        }
        self.next = Some(now.after(PERIOD));
        let wanted = to_free(space, policy.gc_low_percent());
        let freed = self.collect(cx, wanted)?;
        let layers = Layers::new(&cx.paths);
        let idle = self.running.is_none() && !cx.recovery.is_under_way();
        if idle && gc::has_leftovers(&layers, &cx.store.layers_in_use()?) {
            self.run_sweep(cx, "short");
        }
        if freed >= wanted {
            self.failed = false;
            return Ok(());
        }
        let message = format!(
            "Insufficient free disk space on the node's image filesystem ({used}% of {} used). Failed to free \
             sufficient space by deleting unused images (freed {freed} bytes). Investigate disk usage, as it could be \
             used by active images, logs, volumes, or other data.",
            crate::pod::quantity::binary(space.capacity)
        );
        cx.node_event(true, "FreeDiskSpaceFailed", &message)?;
        // As the kubelet: one failure may be bad luck.
        if std::mem::replace(&mut self.failed, true) {
            cx.node_event(true, "ImageGCFailed", &message)?;
        }
        Ok(())
    }

    /// The node is short of disk: whether images are on their way out, so that no pod has to go yet.
    pub(super) fn all(&mut self, cx: &mut Context, pulls: &mut Pulls, now: Mono) -> Result<bool, StoreError> {
        if self.running.is_some() {
            return Ok(self.is_waited_for(now));
        }
        if self.next_all.is_some_and(|next| now < next) {
            return Ok(false);
        }
        // Its disk use grows each second; the downloaded part is kept for the next attempt.
        pulls.stop(cx, "the node is short of disk; the pull goes on when it is not");
        self.collect(cx, u64::MAX)?;
        if self.running.is_none() {
            self.collect_leftovers(cx)?;
        }
        if self.running.is_none() {
            self.taken = None;
            self.next_all = Some(now.after(FRUITLESS));
        }
        Ok(self.running.is_some())
    }

    /// Whether a helper is at work that may still make room soon.
    fn is_waited_for(&self, now: Mono) -> bool {
        self.running.is_some_and(|began| now.since(began) < PATIENCE)
    }

    /// Removes remains of an interrupted collection or pull, if no image can be removed.
    fn collect_leftovers(&mut self, cx: &Context) -> Result<(), StoreError> {
        let layers = Layers::new(&cx.paths);
        if cx.recovery.is_under_way() || !gc::has_leftovers(&layers, &cx.store.layers_in_use()?) {
            return Ok(());
        }
        if let Some((next, word)) = Taken::after(self.taken) {
            self.taken = Some(next);
            self.run_sweep(cx, word);
        }
        Ok(())
    }

    /// Forgets the longest unused images and has their files deleted; how many bytes were chosen.
    fn collect(&mut self, cx: &mut Context, bytes: u64) -> Result<u64, StoreError> {
        // Which images are in use is unknown while pods may be missing.
        if cx.recovery.is_under_way() {
            return Ok(0);
        }
        let mut images = cx.store.images()?;
        // Damaged ones left the store, but not the disk.
        let layers = Layers::new(&cx.paths);
        let mut damaged = layers.records();
        damaged.retain(|record| images.iter().all(|image| image.id != record.id));
        let wall = cx.wall().as_second();
        let used = images_in_use(cx, &damaged);
        images.append(&mut damaged);
        self.used_at.retain(|id, _| images.iter().any(|image| image.id == *id));
        self.used_at.extend(used.iter().map(|id| (id.clone(), wall)));
        let min_age = i64::try_from(*cx.config.images.gc_min_age_seconds).unwrap_or(i64::MAX);
        let rules = gc::Rules { used: &used, used_at: &self.used_at, min_age, now: wall };
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
        cx.store.write_durable(|writer| chosen.iter().try_for_each(|id| writer.image_remove(id)))?;
        self.run_sweep(cx, "short");
        cx.look_now();
        Ok(freed)
    }

    /// Runs beside everything else, also beside pulls.
    fn run_sweep(&mut self, cx: &Context, how: &'static str) {
        self.running = Some(cx.mono());
        let root = cx.paths.root().to_path_buf();
        cx.background(async move {
            let mut helper = program::itself("collect");
            helper.arg(how).arg("--root").arg(root).stderr(Stdio::inherit());
            let result = crate::image::spawn::talk(helper, &[]).await;
            News::Collected(result.map(drop).map_err(|error| error.to_string()))
        });
    }

    pub(super) fn done(&mut self, cx: &mut Context, result: Result<(), String>) -> Result<(), StoreError> {
        self.running = None;
        cx.look_again(cx.mono());
        match result {
            Ok(()) => Ok(()),
            Err(error) => cx.node_event(true, "ImageGCFailed", &error),
        }
    }
}

/// Used share of a file system in percent, rounded up (K8s pkg/kubelet/images/image_gc_manager.go, `GarbageCollect`). Its
/// capacity is not zero.
fn used_percent(space: Observation) -> u64 {
    100 - u64::min(space.available.saturating_mul(100) / space.capacity, 100)
}

/// Bytes to free until only this share is used.
fn to_free(space: Observation, low_percent: u64) -> u64 {
    (space.capacity / 100 * (100 - low_percent)).saturating_sub(space.available)
}

/// Ids of images of all containers that run or will, of static pods, and pinned ones.
fn images_in_use(cx: &Context, damaged: &[ImageRecord]) -> BTreeSet<String> {
    let mut names: BTreeSet<&str> = cx.config.images.pinned.iter().map(String::as_str).into_set();
    for (_, entry) in cx.pods.iter() {
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
    let mut used: BTreeSet<String> = names.iter().filter_map(|name| of_damaged(name)).into_set();
    used.extend(names.into_iter().filter_map(|name| Some(cx.image_record(name, name)?.id)));
    used
}

#[cfg(test)]
mod tests;
