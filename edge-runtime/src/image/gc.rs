//! What may go: images nobody uses, layers of no image, and records whose layers are broken. Decisions are pure;
//! [`sweep`] and [`forget_broken`] act on them.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::image::layers::Layers;
use crate::image::{ImageError, ImageRecord};
use crate::store::Store;

/// An image is not removed before it had this much time to be used (kubelet: `imageMinimumGCAge`).
pub const MIN_AGE_SECONDS: i64 = 120;

/// Ids of images to remove, the longest unused first, until `bytes` are freed. `used` holds the ids of images that
/// containers have; sizes are those of the compressed layers, so that more is freed than counted.
pub fn select_unused(images: &[ImageRecord], used: &BTreeSet<String>, bytes: u64, now: i64) -> Vec<String> {
    let mut unused: Vec<&ImageRecord> = images
        .iter()
        .filter(|image| !used.contains(&image.id) && now.saturating_sub(image.pulled_at) >= MIN_AGE_SECONDS)
        .collect();
    unused.sort_by(|a, b| (a.pulled_at, &a.id).cmp(&(b.pulled_at, &b.id)));
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
        }
    }

    #[test]
    fn the_oldest_unused_images_go_until_enough_is_freed() {
        let images =
            [image("new", 10, 990, &[]), image("b", 10, 200, &[]), image("a", 10, 100, &[]), image("c", 10, 300, &[])];
        let used = BTreeSet::from(["a".to_owned()]);
        assert_eq!(select_unused(&images, &used, 15, 1000), ["b", "c"]);
        assert_eq!(select_unused(&images, &used, 1000, 1000), ["b", "c"], "the new one has its time");
        assert!(select_unused(&images, &used, 0, 1000).is_empty());
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
