//! The frame of a helper process that changes images: it sets limits, removes what earlier helpers left incomplete, and
//! opens the store; at the end it makes one durable commit of records and their copies beside the layers. It does
//! not know registries or archives.

use std::collections::BTreeSet;

use crate::image::gc::{self, Sweep};
use crate::image::layers::Layers;
use crate::image::limits::{Limits, confine_process};
use crate::image::wants::{self, Wants};
use crate::image::{ImageError, access, folders};
use crate::paths::Paths;
use crate::store::Store;
use crate::store::image_record::{Access, ImageRecord};
use crate::sys::files::private_dir;

/// Resources of a helper. Other helpers may run at the same time: see [`crate::image::incoming`].
pub struct Helper {
    pub layers: Layers,
    pub limits: Limits,
    pub wants: Wants,
    store: Store,
}

impl Helper {
    /// Confines this process and clears what earlier ones left half-made.
    ///
    /// # Errors
    /// The state folder or the store cannot be used.
    pub fn begin(paths: &Paths) -> Result<Self, ImageError> {
        let helper = Self::open(paths)?;
        if let Err(error) = helper.sweep(Sweep::USUAL) {
            // In the way of nothing but itself.
            log::warn!("leftovers stay: {error}");
        }
        Ok(helper)
    }

    /// Same as [`Helper::begin`], but changes nothing.
    ///
    /// # Errors
    /// Same as [`Helper::begin`].
    pub fn open(paths: &Paths) -> Result<Self, ImageError> {
        let limits = Limits::default();
        confine_process(&limits);
        private_dir(&paths.state()).map_err(ImageError::io(paths.state(), "cannot make"))?;
        let layers = Layers::new(paths);
        layers.prepare()?;
        let store = Store::open_shared(&paths.store())?;
        Ok(Self { layers, limits, wants: Wants::default(), store })
    }

    /// The image a reference or id leads to. A store that cannot answer knows none: the image is fetched again.
    pub fn known(&self, key: &str) -> Option<ImageRecord> {
        self.store.image_by_reference(key).unwrap_or_else(|error| {
            log::warn!("{error}");
            None
        })
    }

    /// All images, by id.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn images(&self) -> Result<Vec<ImageRecord>, ImageError> {
        Ok(self.store.images()?)
    }

    /// Whether every user of one of these logins (`keys`, see [`access::keys`]) may have this layer. The records of its
    /// images and of interrupted pulls decide.
    pub fn may_share(&self, diff_id: &str, keys: &BTreeSet<String>) -> bool {
        let has = |layers: &[String]| layers.iter().any(|layer| layer == diff_id);
        let open = |(layers, access): (Vec<String>, Access)| has(&layers) && access::is_open_to(&access, keys);
        let images = self.store.images().unwrap_or_default().into_iter().chain(self.layers.records());
        let tried = wants::all(self.layers.incoming()).into_iter().map(|want| (want.brought, want.access));
        images.map(|image| (image.layers, image.access)).chain(tried).any(open)
    }

    /// Makes images known; their layers are durable already. Names that an image of the same id has are kept.
    ///
    /// # Errors
    /// A layer does not exist any more, or the store cannot be written; nothing is recorded then.
    pub fn commit(&mut self, records: Vec<ImageRecord>) -> Result<Vec<ImageRecord>, ImageError> {
        let mut records = joined(records);
        let lock = self.layers.lock()?;
        let mut losing = Vec::new();
        for record in &mut records {
            record.config.folders = folders::of(&self.layers, &record.layers);
            if let Some(gone) = record.layers.iter().find(|layer| !self.layers.has(layer)) {
                return Err(ImageError::broken(
                    &record.id,
                    format!("layer {gone}"),
                    "was removed meanwhile; try again",
                ));
            }
            for earlier in self.known(&record.id).map(|known| known.references).unwrap_or_default() {
                if !record.references.contains(&earlier) {
                    record.references.push(earlier);
                }
            }
            // Images that this one takes a name from.
            let others = record.references.iter().filter_map(|name| self.known(name));
            losing.extend(others.filter(|other| other.id != record.id).map(|other| other.id));
        }
        // Beside the layers first: what only the store knew could be lost with it.
        records.iter().try_for_each(|record| self.layers.put_record(record, true))?;
        self.store.write_and_sync(|writer| records.iter().try_for_each(|record| writer.image_put(record)))?;
        for other in losing.iter().filter_map(|id| self.known(id)) {
            self.layers.put_record(&other, true)?;
        }
        drop(lock);
        self.wants.done();
        Ok(records)
    }

    /// Removes what no image needs. Needs no free space: renames and deletes.
    ///
    /// # Errors
    /// The store cannot be read, or something cannot be removed; all other work is done.
    pub fn sweep(&self, how: Sweep) -> Result<(), ImageError> {
        gc::sweep(&self.layers, || Ok(self.store.layers_in_use()?), how)
    }

    /// Removes images with damaged layers. Their intact layers stay, and so do the records beside them.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn forget(&mut self, ids: &[String]) -> Result<(), ImageError> {
        let _lock = self.layers.lock()?;
        Ok(self.store.write_and_sync(|writer| ids.iter().try_for_each(|id| writer.image_remove(id)))?)
    }

    /// Removes images and the layers that no other image needs. Images of containers must not be among them.
    ///
    /// # Errors
    /// The store cannot be written, or a layer cannot be removed.
    pub fn remove(&mut self, ids: &[String]) -> Result<(), ImageError> {
        let removed: Vec<ImageRecord> = ids.iter().filter_map(|id| self.known(id)).collect();
        removed.iter().try_for_each(|image| self.layers.drop_record(image))?;
        self.store.write_and_sync(|writer| removed.iter().try_for_each(|image| writer.image_remove(&image.id)))?;
        self.sweep(Sweep::USUAL)
    }
}

/// One record for each image: an archive may have an image under several names.
fn joined(records: Vec<ImageRecord>) -> Vec<ImageRecord> {
    let mut joined: Vec<ImageRecord> = Vec::new();
    for record in records {
        match joined.iter_mut().find(|known| known.id == record.id) {
            Some(known) => {
                let more = record.references.into_iter().filter(|name| !known.references.contains(name));
                let more: Vec<String> = more.collect();
                known.references.extend(more);
            }
            None => joined.push(record),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::layers::testing::image;

    #[test]
    fn all_names_of_one_image_are_kept() {
        let all = joined(vec![image(1, "reg/a:1", &[]), image(2, "reg/c:1", &[]), image(1, "reg/b:1", &[])]);
        let names: Vec<_> = all.iter().map(|image| image.references.join(" ")).collect();
        assert_eq!(names, ["reg/a:1 reg/b:1", "reg/c:1"]);
    }
}
