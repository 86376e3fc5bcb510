//! Garbage collection: unused images, layers of no image, and records whose layers are broken. Decisions are pure;
//! [`sweep`] acts on them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::image::digest::hex;
use crate::image::incoming::DROP;
use crate::image::layers::{Layers, read_json};
use crate::image::{ImageError, wants};
use crate::store::image_record::ImageRecord;
use crate::sys::gather::Gather;
use crate::sys::sort::sort_by;

/// What [`select_unused`] needs to know beside the images.
pub struct Rules<'a> {
    /// Ids of images that something needs.
    pub used: &'a BTreeSet<String>,
    /// Last use of an image, in seconds of wall time; an unused one counts from its pull.
    pub used_at: &'a BTreeMap<String, i64>,
    /// An image is not removed before it had this many seconds to be used.
    pub min_age: i64,
    /// Seconds of wall time.
    pub now: i64,
}

/// Ids of images to remove, the longest unused first, until `bytes` are freed. Sizes are those of the compressed
/// layers, so that more is freed than counted.
pub fn select_unused(images: &[ImageRecord], rules: &Rules<'_>, bytes: u64) -> Vec<String> {
    // A pull in the future was made by a clock that has been set back since: no longer young.
    let young = |image: &ImageRecord| (0..rules.min_age).contains(&rules.now.saturating_sub(image.pulled_at));
    let mut unused: Vec<&ImageRecord> =
        images.iter().filter(|image| !rules.used.contains(&image.id) && !young(image)).collect();
    let last = |image: &ImageRecord| rules.used_at.get(&image.id).copied().unwrap_or(0).max(image.pulled_at);
    sort_by(&mut unused, |a, b| (last(a), &a.id).cmp(&(last(b), &b.id)));
    let mut freed = 0_u64;
    let mut chosen = Vec::new();
    for image in unused {
        if freed >= bytes {
            break;
        }
        freed = freed.saturating_add(image.size);
        chosen.push(image.id.clone());
    }
    chosen
}

/// Ids of images with a layer that `has` does not know: after a power cut on a medium that lied. They leave the store,
/// while their records beside the layers stay, so that the next use pulls just what is missing.
pub fn select_broken(images: &[ImageRecord], has: impl Fn(&str) -> bool) -> Vec<String> {
    images.iter().filter(|image| !image.layers.iter().all(|layer| has(layer))).map(|image| image.id.clone()).collect()
}

/// What a sweep removes beside deleted images and abandoned work.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    /// Unfinished downloads, and layers of pulls that never finished, are kept this long for another try.
    pub keep: Duration,
    /// Layers that nothing names. Without need they stay: a node that lost its records may find them of use.
    pub orphans: bool,
}

impl Sweep {
    /// The regular sweep.
    pub const USUAL: Self = Self { keep: Duration::from_secs(7 * 24 * 3600), orphans: false };
    /// A sweep in a disk shortage: downloads stay.
    pub const SHORT: Self = Self { orphans: true, ..Self::USUAL };
    /// A sweep in a disk shortage that [`Sweep::SHORT`] did not end.
    pub const SHORTEST: Self = Self { keep: Duration::ZERO, orphans: true };
}

/// Removes layers that belong to no image, half-made ones, and old downloads. `in_use` returns the layers of all images
/// in the store; it is called under the lock.
///
/// # Errors
/// Something cannot be removed; all the rest is.
pub fn sweep(
    layers: &Layers,
    in_use: impl FnOnce() -> Result<BTreeSet<String>, ImageError>,
    how: Sweep,
) -> Result<(), ImageError> {
    let incoming = layers.incoming();
    let lock = layers.lock()?;
    let mut in_use = in_use()?;
    let records = layers.records();
    let has_all = |image: &&ImageRecord| image.layers.iter().all(|layer| layers.has(layer));
    let known: BTreeSet<&str> = records.iter().filter(has_all).map(|image| hex(&image.id)).into_set();
    let (live, old) = wants::sort(incoming, how.keep, |image| known.contains(image))
        .map_err(incoming.error("cannot read the notes in"))?;
    in_use.extend(records.into_iter().flat_map(|image| image.layers));
    in_use.extend(live.into_iter().flat_map(|want| want.layers));
    let notes = incoming.entries(DROP).map_err(incoming.error("cannot read"))?;
    let mut going: BTreeSet<String> = old.into_iter().flat_map(|want| want.layers).into_set();
    going.extend(notes.iter().filter_map(|note| read_json::<ImageRecord>(note)).flat_map(|image| image.layers));
    for layer in layers.list()? {
        // An incomplete layer is of no use.
        if how.orphans || !layers.has(&layer) {
            going.insert(layer);
        }
    }
    let mut result = going.difference(&in_use).try_for_each(|layer| layers.retire(layer));
    if result.is_ok() {
        let removed = notes.iter().try_for_each(std::fs::remove_file);
        result = removed.map_err(incoming.error("cannot remove a note in"));
    }
    let drafts = layers.remove_drafts().map_err(incoming.error("cannot remove the drafts beside"));
    let cleared = incoming.clear(how.keep).map_err(incoming.error("cannot clear"));
    drop(lock);
    let deleted = incoming.delete_gone().map_err(incoming.error("cannot delete in"));
    result.and(drafts).and(cleared).and(deleted)
}

/// Whether a [`sweep`] of the short kind would find something, given the layers of all images in the store.
pub fn has_leftovers(layers: &Layers, in_use: &BTreeSet<String>) -> bool {
    let named: BTreeSet<String> = layers.records().into_iter().flat_map(|image| image.layers).into_set();
    let orphan = |layer: &String| !in_use.contains(layer) && !named.contains(layer);
    layers.list().is_ok_and(|all| all.iter().any(orphan)) || layers.incoming().has_entries()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::image_record::ImageConfig;

    fn image(id: &str, size: u64, pulled_at: i64, layers: &[&str]) -> ImageRecord {
        ImageRecord {
            id: id.into(),
            references: Vec::new(),
            config: ImageConfig::default(),
            layers: layers.iter().map(|l| (*l).to_owned()).collect(),
            size,
            pulled_at,
            access: Default::default(),
        }
    }

    #[test]
    fn the_oldest_unused_images_go_until_enough_is_freed() {
        let images =
            [image("new", 10, 990, &[]), image("b", 10, 200, &[]), image("a", 10, 100, &[]), image("c", 10, 300, &[])];
        let used = BTreeSet::from(["a".to_owned()]);
        let mut used_at = BTreeMap::new();
        let select = |used_at: &BTreeMap<String, i64>, bytes| {
            select_unused(&images, &Rules { used: &used, used_at, min_age: 120, now: 1000 }, bytes)
        };
        assert_eq!(select(&used_at, 15), ["b", "c"]);
        assert_eq!(select(&used_at, 1000), ["b", "c"], "the new one has its time");
        assert!(select(&used_at, 0).is_empty());
        used_at.insert("b".to_owned(), 900);
        assert_eq!(select(&used_at, 5), ["c"], "b was used later");
        let earlier = Rules { used: &used, used_at: &used_at, min_age: 120, now: 50 };
        assert_eq!(select_unused(&images, &earlier, 5).len(), 1, "a clock set back makes nothing young");
    }

    #[test]
    fn an_image_without_one_of_its_layers_is_broken() {
        let images = [image("whole", 1, 0, &["x"]), image("half", 1, 0, &["x", "y"]), image("empty", 1, 0, &[])];
        assert_eq!(select_broken(&images, |layer| layer == "x"), ["half"]);
    }
}
