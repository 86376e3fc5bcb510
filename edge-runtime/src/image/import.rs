//! Takes images out of archives: OCI image layouts (image-spec `image-layout.md`) and what `docker save` writes.
//! Unpacks layers and returns records; storing those is the caller's.

use serde::Deserialize;

use crate::image::archive::Source;
use crate::image::digest::{hex, sha256, sha256_of};
use crate::image::layers::Layers;
use crate::image::limits::Limits;
use crate::image::manifest::{Configuration, Descriptor, Document, parse_configuration, parse_document};
use crate::image::platform::Wanted;
use crate::image::wants::Wants;
use crate::image::{ImageError, Reference, assemble};
use crate::store::image_record::{Access, ImageRecord};
use crate::sys::from_json::from_json;

/// What an import needs to know besides the archive.
pub struct Import<'a> {
    pub layers: &'a Layers,
    pub wanted: &'a Wanted,
    pub limits: &'a Limits,
    /// Name to give instead of the archive's own.
    pub name: Option<&'a Reference>,
    /// Unix seconds.
    pub now: i64,
    pub wants: &'a Wants,
}

/// `manifest.json` of `docker save`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Option<Vec<String>>,
}

const DOCKER_LIST: &str = "manifest.json";
const OCI_INDEX: &str = "index.json";
/// Written by containerd and Docker: the full name.
const FULL_NAME: &str = "io.containerd.image.name";
/// image-spec annotation: often only a tag.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

impl Import<'_> {
    /// Unpacks every image of the archive that fits this machine.
    ///
    /// # Errors
    /// The archive is neither kind, is cut or lies about its content, or has no image with a name for this machine.
    pub fn run(&self, source: &Source) -> Result<Vec<ImageRecord>, ImageError> {
        // Docker writes both; only its own list surely has full names, only the index has digests.
        if source.has(OCI_INDEX) {
            self.layout(source)
        } else if source.has(DOCKER_LIST) {
            self.docker_archive(source)
        } else {
            Err(self.broken(source, "archive", "holds neither index.json (OCI layout) nor manifest.json (docker save)"))
        }
    }

    fn layout(&self, source: &Source) -> Result<Vec<ImageRecord>, ImageError> {
        let bytes = source.read(OCI_INDEX, self.limits.document_bytes)?;
        let Document::Index(entries) = parse_document(&bytes, &source.name, OCI_INDEX)? else {
            return Err(self.broken(source, OCI_INDEX, "is a manifest, not an index"));
        };
        let named = by_name(&entries).into_iter().map(|group| {
            let entry = match group.as_slice() {
                [only] => only.clone(),
                many => self.wanted.select(many, &source.name)?.clone(),
            };
            Ok((self.references(source, &entry)?, entry))
        });
        self.each(source, named, |references, entry| self.manifest(source, &entry, references))
    }

    /// Follows a descriptor to its manifest, through an index of platforms if there is one.
    fn manifest(
        &self,
        source: &Source,
        entry: &Descriptor,
        references: Vec<String>,
    ) -> Result<ImageRecord, ImageError> {
        let image = references.first().map_or(source.name.as_str(), String::as_str).to_owned();
        let document = |digest: &str| self.document(source, digest);
        let manifest = assemble::manifest(&document(&entry.digest)?, &entry.digest, self.wanted, &image, document)?;
        let configuration = parse_configuration(&self.document(source, &manifest.config.digest)?, &image)?;
        assemble::check(&configuration, manifest.layers.len(), self.wanted, self.limits, &image)?;
        self.begin(&manifest.config.digest, &configuration, manifest.layers.iter().map(|layer| layer.size).collect())?;
        for (layer, diff_id) in manifest.layers.iter().zip(&configuration.diff_ids) {
            if self.layers.has(diff_id) {
                continue;
            }
            let path = blob(&layer.digest);
            let found = sha256_of(source.stream(&path)?).map_err(|error| self.broken(source, &path, error))?;
            ImageError::compare(found, &layer.digest, || format!("{path} of {}", source.name))?;
            self.layers.add(diff_id, source.stream(&path)?, self.limits, &image)?;
            self.wants.brought(diff_id);
        }
        self.check_unpacked(&configuration, &image)?;
        let size = assemble::size(&manifest);
        Ok(assemble::record(manifest.config.digest, references, configuration, self.wanted, size, self.now))
    }

    fn docker_archive(&self, source: &Source) -> Result<Vec<ImageRecord>, ImageError> {
        let bytes = source.read(DOCKER_LIST, self.limits.document_bytes)?;
        let images: Vec<Saved> = from_json(&bytes).map_err(|error| self.broken(source, DOCKER_LIST, error))?;
        if self.name.is_some() && images.len() > 1 {
            return Err(self.broken(source, DOCKER_LIST, "holds several images, which cannot all have one name"));
        }
        let named = images.into_iter().map(|mut saved| {
            let tags = saved.repo_tags.take().unwrap_or_default();
            let tags = tags.iter().map(|tag| Ok(Reference::parse(tag)?.to_string()));
            let references: Vec<String> = match self.name {
                Some(name) => vec![name.to_string()],
                None => tags.collect::<Result<_, ImageError>>()?,
            };
            if references.is_empty() { Err(self.unnamed(source)) } else { Ok((references, saved)) }
        });
        self.each(source, named, |references, saved| {
            let image = references.first().map_or(source.name.as_str(), String::as_str).to_owned();
            let bytes = source.read(&saved.config, self.limits.document_bytes)?;
            let configuration: Configuration = parse_configuration(&bytes, &image)?;
            let files = saved.layers.unwrap_or_default();
            assemble::check(&configuration, files.len(), self.wanted, self.limits, &image)?;
            let id = sha256(&bytes);
            self.begin(&id, &configuration, files.iter().map(|file| source.size(file)).collect())?;
            // Layers have no digest of their own here: the diff id is checked while unpacking.
            for (file, diff_id) in files.iter().zip(&configuration.diff_ids) {
                if !self.layers.has(diff_id) {
                    self.layers.add(diff_id, source.stream(file)?, self.limits, &image)?;
                    self.wants.brought(diff_id);
                }
            }
            self.check_unpacked(&configuration, &image)?;
            let size = bytes.len() as u64 + files.iter().map(|file| source.size(file)).sum::<u64>();
            Ok(assemble::record(id, references, configuration, self.wanted, size, self.now))
        })
    }

    /// Takes each image of the archive. One without a usable name, or none of whose builds runs here, is passed over as long
    /// as another can be had.
    fn each<T>(
        &self,
        source: &Source,
        named: impl Iterator<Item = Result<(Vec<String>, T), ImageError>>,
        take: impl Fn(Vec<String>, T) -> Result<ImageRecord, ImageError>,
    ) -> Result<Vec<ImageRecord>, ImageError> {
        let (mut records, mut passed) = (Vec::new(), None);
        for one in named {
            let error = match one {
                Err(error) => error,
                Ok((references, image)) => match take(references, image) {
                    Ok(record) => {
                        records.push(record);
                        continue;
                    }
                    Err(error @ ImageError::NoPlatform { .. }) => error,
                    Err(error) => return Err(error),
                },
            };
            log::warn!("{error}; this image of {} is passed over", source.name);
            passed.get_or_insert(error);
        }
        match (records.is_empty(), passed) {
            (true, Some(error)) => Err(error),
            (true, None) => Err(self.broken(source, "archive", "holds no image")),
            (false, _) => Ok(records),
        }
    }

    /// Until the record is there the image's layers are known by a note.
    fn begin(&self, id: &str, configuration: &Configuration, sizes: Vec<u64>) -> Result<(), ImageError> {
        self.wants.begin(self.layers.incoming(), id, &configuration.diff_ids, sizes, Access::new())
    }

    fn check_unpacked(&self, configuration: &Configuration, image: &str) -> Result<(), ImageError> {
        let bytes = |layer: &String| self.layers.contents(layer).unwrap_or_default().bytes;
        let sum = configuration.diff_ids.iter().map(bytes).fold(0, u64::saturating_add);
        assemble::check_unpacked(sum, self.limits, image)
    }

    /// An index, manifest or configuration, checked against the digest it is asked by.
    fn document(&self, source: &Source, digest: &str) -> Result<Vec<u8>, ImageError> {
        let path = blob(digest);
        let bytes = source.read(&path, self.limits.document_bytes)?;
        ImageError::compare(sha256(&bytes), digest, || format!("{path} of {}", source.name))?;
        Ok(bytes)
    }

    fn references(&self, source: &Source, entry: &Descriptor) -> Result<Vec<String>, ImageError> {
        let reference = match (self.name, name_of(entry)) {
            (Some(name), _) => name.clone(),
            (None, Some(name)) if name.contains(['/', ':', '@']) || entry.annotations.contains_key(FULL_NAME) => {
                Reference::parse(name)?
            }
            _ => return Err(self.unnamed(source)),
        };
        let mut keys = vec![reference.to_string(), format!("{}@{}", reference.name(), entry.digest)];
        keys.dedup();
        Ok(keys)
    }

    fn unnamed(&self, source: &Source) -> ImageError {
        self.broken(source, "archive", "an image in it has no full name; give one with --reference")
    }

    fn broken(&self, source: &Source, what: &str, why: impl ToString) -> ImageError {
        ImageError::broken(&source.name, what, why)
    }
}

fn blob(digest: &str) -> String {
    format!("blobs/sha256/{}", hex(digest))
}

fn name_of(entry: &Descriptor) -> Option<&str> {
    entry.annotations.get(FULL_NAME).or_else(|| entry.annotations.get(REF_NAME)).map(String::as_str)
}

/// Entries of one name are the builds of one image for several platforms.
fn by_name(entries: &[Descriptor]) -> Vec<Vec<Descriptor>> {
    let mut groups: Vec<Vec<Descriptor>> = Vec::new();
    for entry in entries {
        match groups.iter_mut().find(|group| name_of(&group[0]) == name_of(entry)) {
            Some(group) => group.push(entry.clone()),
            None => groups.push(vec![entry.clone()]),
        }
    }
    groups
}
