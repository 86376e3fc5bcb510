//! Which images are on this node and under which names.

use rusqlite::OptionalExtension;

use super::{Store, StoreError, Writer};
use crate::store::image_record::ImageRecord;
use crate::sys::gather::Gather;

impl Store {
    /// The image a normalized reference (or an image id) leads to.
    ///
    /// # Errors
    /// SQLite fails or the row is not an image record.
    pub fn image_by_reference(&self, reference: &str) -> Result<Option<ImageRecord>, StoreError> {
        let sql = "SELECT record FROM images WHERE id = ?1
                   UNION ALL SELECT record FROM image_references r JOIN images i ON i.id = r.image WHERE reference = ?1
                   LIMIT 1";
        let text: Option<String> = self.one(sql, &[&reference])?;
        text.map(|text| self.parse(&format!("image {reference}"), &text)).transpose()
    }

    /// All images.
    ///
    /// # Errors
    /// SQLite fails or a row is not an image record.
    pub fn images(&self) -> Result<Vec<ImageRecord>, StoreError> {
        let texts: Vec<String> = self.all("SELECT record FROM images ORDER BY id", &[], |row| row.get(0))?;
        texts.iter().map(|text| self.parse("image", text)).collect()
    }

    /// Diff ids of all layers that some image is made of.
    ///
    /// # Errors
    /// Same as [`Store::images`].
    pub fn layers_in_use(&self) -> Result<std::collections::BTreeSet<String>, StoreError> {
        Ok(self.images()?.into_iter().flat_map(|image| image.layers).into_set())
    }
}

impl Writer<'_> {
    /// Adds or replaces an image. Its references leave the image they led to before.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn image_put(&self, image: &ImageRecord) -> Result<(), StoreError> {
        for reference in &image.references {
            self.image_untag(reference)?;
        }
        self.execute(
            "INSERT OR REPLACE INTO images (id, record) VALUES (?1, ?2)",
            &[&image.id, &self.json(&image.id, image)?],
        )?;
        for reference in &image.references {
            self.execute(
                "INSERT OR REPLACE INTO image_references (reference, image) VALUES (?1, ?2)",
                &[&reference, &image.id],
            )?;
        }
        Ok(())
    }

    /// Takes a name away from the image it leads to, in its record too.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn image_untag(&self, reference: &str) -> Result<(), StoreError> {
        let sqlite = |source| StoreError::Sqlite { path: self.path.into(), source };
        let sql = "SELECT record FROM image_references r JOIN images i ON i.id = r.image WHERE reference = ?1";
        let text: Option<String> = self.tx.query_row(sql, [reference], |row| row.get(0)).optional().map_err(sqlite)?;
        if let Some(mut image) = text.and_then(|text| serde_json::from_str::<ImageRecord>(&text).ok()) {
            image.references.retain(|held| held != reference);
            self.execute("UPDATE images SET record = ?2 WHERE id = ?1", &[&image.id, &self.json(&image.id, &image)?])?;
        }
        self.execute("DELETE FROM image_references WHERE reference = ?1", &[&reference]).map(drop)
    }

    /// # Errors
    /// SQLite fails.
    pub fn image_remove(&self, id: &str) -> Result<(), StoreError> {
        self.execute("DELETE FROM image_references WHERE image = ?1", &[&id])?;
        self.execute("DELETE FROM images WHERE id = ?1", &[&id]).map(drop)
    }
}
