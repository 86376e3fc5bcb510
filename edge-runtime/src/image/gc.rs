//! What may go: images nobody uses, layers of no image, and records whose layers are broken. Decisions are pure;
//! [`sweep`] and [`forget_broken`] act on them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::image::layers::Layers;
use crate::image::{ImageError, ImageRecord};
use crate::store::Store;

/// What [`select_unused`] needs to know beside the images.
pub struct Rules<'a> {
    /// Ids of images that something needs.
    pub used: &'a BTreeSet<String>,
    /// When an image was last seen in use, seconds of wall time; one that never was counts from its pull.
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
    unused.sort_by(|a, b| (last(a), &a.id).cmp(&(last(b), &b.id)));
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

/// Ids of images with a layer that `has` does not know: after a power cut on a medium that lied. Their records are to
/// be dropped, so that the next use pulls just what is missing.
pub fn select_broken(images: &[ImageRecord], has: impl Fn(&str) -> bool) -> Vec<String> {
    images.iter().filter(|image| !image.layers.iter().all(|layer| has(layer))).map(|image| image.id.clone()).collect()
}

/// For the start of the daemon: drops the records of images whose layers a power cut has spoiled and returns their
/// ids. A few system calls per layer; `edge-runtime images --verify` looks deeper.
///
/// # Errors
/// The store cannot be read or written.
pub fn forget_broken(store: &mut Store, layers: &Layers) -> Result<Vec<String>, ImageError> {
    let broken = select_broken(&store.images()?, |layer| layers.has(layer));
    if !broken.is_empty() {
        store.write(|writer| broken.iter().try_for_each(|id| writer.image_remove(id)))?;
    }
    Ok(broken)
}

/// Removes half-made layers, and after `keep` also unfinished downloads and layers that belong to no image
/// (`in_use`: those that do). The caller holds the lock.
///
/// # Errors
/// Something cannot be removed.
pub fn sweep(layers: &Layers, in_use: &BTreeSet<String>, keep: Duration) -> Result<(), ImageError> {
    for orphan in layers.list()?.iter().filter(|layer| !in_use.contains(*layer)) {
        // A layer of a pull that was cut short waits for the pull to go on.
        if !layers.has(orphan) || layers.age(orphan).is_none_or(|age| age > keep) {
            layers.retire(orphan)?;
        }
    }
    layers.empty_incoming(keep)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::ImageConfig;

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
        let temp = tempfile::tempdir().unwrap();
        let mut store = Store::in_memory().unwrap();
        store.write(|writer| images.iter().try_for_each(|image| writer.image_put(image))).unwrap();
        let none = Layers::new(&crate::paths::Paths::new(temp.path()));
        assert_eq!(forget_broken(&mut store, &none).unwrap(), ["half", "whole"]);
        assert_eq!(store.images().unwrap().len(), 1, "an image without layers lacks none");
    }
}
