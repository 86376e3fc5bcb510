//! The start of the daemon: reconciles the images of the store with the records beside the layers. Either may be
//! incomplete: the store after damage of the disk, the records after an older version that did not write any.

use std::collections::{BTreeMap, BTreeSet};

use crate::image::ImageError;
use crate::image::gc::select_broken;
use crate::image::layers::Layers;
use crate::store::Store;
use crate::store::image_record::ImageRecord;
use crate::sys::gather::Gather;
use crate::sys::sort::sort_by;

/// Result: ids of images.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Known again.
    pub restored: Vec<String>,
    /// Images with incomplete layers: removed from the store; the missing layers must be pulled again.
    pub broken: Vec<String>,
}

/// A few system calls per layer; `edge-runtime images --verify` looks deeper.
///
/// # Errors
/// The store cannot be read or written.
pub fn settle(store: &mut Store, layers: &Layers) -> Result<Settled, ImageError> {
    let rows = store.images()?;
    let noted = layers.records();
    let has = |layer: &str| layers.has(layer);
    let broken = select_broken(&rows, has);
    let restored = to_restore(&rows, &noted, has);
    if !broken.is_empty() || !restored.is_empty() {
        store.write(|writer| {
            broken.iter().try_for_each(|id| writer.image_remove(id))?;
            restored.iter().try_for_each(|image| writer.image_put(image))
        })?;
    }
    layers.prepare()?;
    let noted: BTreeMap<&str, &ImageRecord> = noted.iter().map(|image| (image.id.as_str(), image)).into_map();
    for row in &rows {
        let is_noted = noted.get(row.id.as_str()).is_some_and(|noted| *noted == row);
        // Intact layers of a broken image must not count as leftovers.
        if !is_noted && row.layers.iter().any(|layer| layers.has(layer)) {
            // Lost in a power cut it is written again at the next start.
            if let Err(error) = layers.put_record(row, false) {
                log::warn!("{error}");
            }
        }
    }
    Ok(Settled { restored: restored.into_iter().map(|image| image.id).collect(), broken })
}

/// Records that the store lost and whose layers are whole, the oldest first. A name that the store gives to another
/// image that is not older stays with that one.
fn to_restore(rows: &[ImageRecord], noted: &[ImageRecord], has: impl Fn(&str) -> bool) -> Vec<ImageRecord> {
    let known: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).into_set();
    let mut names: BTreeMap<&str, i64> = BTreeMap::new();
    for row in rows {
        names.extend(row.references.iter().map(|name| (name.as_str(), row.pulled_at)));
    }
    let lost = noted.iter().filter(|image| !known.contains(image.id.as_str()));
    let mut lost: Vec<ImageRecord> =
        lost.filter(|image| image.layers.iter().all(|layer| has(layer))).cloned().collect();
    for image in &mut lost {
        let pulled_at = image.pulled_at;
        image.references.retain(|name| names.get(name.as_str()).is_none_or(|at| *at < pulled_at));
    }
    sort_by(&mut lost, |a, b| (a.pulled_at, &a.id).cmp(&(b.pulled_at, &b.id)));
    lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::layers::testing::{add, image, node};

    #[test]
    fn a_lost_store_is_filled_from_beside_the_layers() {
        let (_temp, layers) = node();
        let (one, two) = (add(&layers, "one"), add(&layers, "two"));
        let mut store = Store::in_memory().unwrap();
        let whole = image(1, "reg/app:1", &[&one]);
        let half = image(2, "reg/app:2", &[&one, &format!("sha256:{}", "0".repeat(64))]);
        for record in [&whole, &half] {
            layers.put_record(record, true).unwrap();
        }
        let settled = settle(&mut store, &layers).unwrap();
        assert_eq!(settled, Settled { restored: vec![whole.id.clone()], broken: vec![] });
        assert_eq!(store.images().unwrap(), std::slice::from_ref(&whole));
        assert_eq!(settle(&mut store, &layers).unwrap(), Settled::default(), "once");
        // The opposite case: images of a version without records, one of them damaged since.
        let old = image(3, "reg/old:1", &[&two]);
        let torn = image(4, "reg/torn:1", &[&two, &format!("sha256:{}", "1".repeat(64))]);
        store.write(|writer| [&old, &torn].iter().try_for_each(|image| writer.image_put(image))).unwrap();
        let settled = settle(&mut store, &layers).unwrap();
        assert_eq!(settled, Settled { restored: vec![], broken: vec![torn.id.clone()] });
        assert!(layers.records().contains(&old) && layers.records().contains(&torn));
        // A record that a power cut tore is written again.
        let path = layers.dir().join(format!("{}.image", &old.id[7..]));
        std::fs::write(&path, "{").unwrap();
        settle(&mut store, &layers).unwrap();
        assert!(layers.records().contains(&old));
        // A record whose write a power cut interrupted does not count.
        let count = layers.records().len();
        std::fs::copy(&path, path.with_file_name(format!(".{}.image", &old.id[7..]))).unwrap();
        assert_eq!(layers.records().len(), count);
    }

    #[test]
    fn a_name_stays_with_the_image_that_had_it_last() {
        let at = |id, name, pulled_at| ImageRecord { pulled_at, ..image(id, name, &[]) };
        let rows = [at(1, "reg/app:1", 10)];
        let noted = [at(2, "reg/app:1", 9), at(3, "reg/b:1", 5), at(1, "reg/x:1", 1)];
        let restored = to_restore(&rows, &noted, |_| true);
        assert_eq!(restored.iter().map(|r| (r.pulled_at, r.references.len())).collect::<Vec<_>>(), [(5, 1), (9, 0)]);
    }
}
