//! The frame of a helper process that changes images: limits first, then the lock, then the store; at the end one
//! durable commit. Knows neither registries nor archives.

use std::time::Duration;

use crate::image::gc;
use crate::image::layers::{Layers, Lock};
use crate::image::limits::{Limits, confine_process};
use crate::image::{ImageError, ImageRecord};
use crate::paths::Paths;
use crate::store::Store;
use crate::sys::files::private_dir;

/// Unfinished downloads, and layers of pulls that never finished, are kept this long for another attempt.
pub const KEEP: Duration = Duration::from_secs(7 * 24 * 3600);

/// What a helper works with. While it exists no other helper changes the layers.
pub struct Helper {
    pub layers: Layers,
    pub limits: Limits,
    store: Store,
    _lock: Lock,
}

impl Helper {
    /// Confines this process, waits for other helpers, and clears what earlier ones left half-made.
    ///
    /// # Errors
    /// The state folder or the store cannot be used.
    pub fn begin(paths: &Paths) -> Result<Self, ImageError> {
        let limits = Limits::default();
        confine_process(&limits);
        private_dir(&paths.state()).map_err(ImageError::io(paths.state(), "cannot make"))?;
        let layers = Layers::new(paths);
        let lock = layers.lock()?;
        let store = Store::open_shared(&paths.store())?;
        let helper = Self { layers, limits, store, _lock: lock };
        gc::sweep(&helper.layers, &helper.store.layers_in_use()?, KEEP)?;
        Ok(helper)
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

    /// Makes images known; their layers are durable already. Names that an image of the same id has are kept.
    ///
    /// # Errors
    /// The store cannot be written; nothing is known then.
    pub fn commit(&mut self, mut records: Vec<ImageRecord>) -> Result<Vec<ImageRecord>, ImageError> {
        for record in &mut records {
            for earlier in self.known(&record.id).map(|known| known.references).unwrap_or_default() {
                if !record.references.contains(&earlier) {
                    record.references.push(earlier);
                }
            }
        }
        self.store.write_durable(|writer| records.iter().try_for_each(|record| writer.image_put(record)))?;
        Ok(records)
    }

    /// Removes every layer that belongs to no image. Needs no free space: renames and deletes.
    ///
    /// # Errors
    /// The store cannot be read, or a layer cannot be removed.
    pub fn collect(&self) -> Result<(), ImageError> {
        gc::sweep(&self.layers, &self.store.layers_in_use()?, Duration::ZERO)
    }

    /// Forgets images and removes the layers that no other image needs. Images of containers must not be among them.
    ///
    /// # Errors
    /// The store cannot be written, or a layer cannot be removed.
    pub fn remove(&mut self, ids: &[String]) -> Result<(), ImageError> {
        let removed: Vec<ImageRecord> = ids.iter().filter_map(|id| self.known(id)).collect();
        self.store.write_durable(|writer| removed.iter().try_for_each(|image| writer.image_remove(&image.id)))?;
        let in_use = self.store.layers_in_use()?;
        for layer in removed.iter().flat_map(|image| &image.layers).filter(|layer| !in_use.contains(*layer)) {
            self.layers.retire(layer)?;
        }
        self.layers.empty_incoming(KEEP)
    }
}
