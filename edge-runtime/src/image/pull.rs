//! From an image name to an image on this node: the road through a registry. Runs in the helper process, blocks, and
//! returns a record; storing it is the caller's.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufReader;

use crate::image::auth::Keyring;
use crate::image::layers::Layers;
use crate::image::limits::Limits;
use crate::image::manifest::{Descriptor, parse_configuration};
use crate::image::platform::Wanted;
use crate::image::progress::Progress;
use crate::image::registry::{Endpoint, Repository, endpoints, without_tls};
use crate::image::registry_config::{RegistryConfig, registry_for};
use crate::image::wants::Wants;
use crate::image::{ImageError, Reference, access, assemble, download};
use crate::net::proxy::Proxy;
use crate::store::image_record::ImageRecord;
use crate::sys::gather::Gather;

/// What a pull needs to know besides the name.
pub struct Pull<'a> {
    pub layers: &'a Layers,
    pub wanted: &'a Wanted,
    pub limits: &'a Limits,
    pub registries: &'a [RegistryConfig],
    pub proxy: &'a Proxy,
    pub keyring: &'a Keyring,
    /// The image a reference or an id leads to on this node.
    pub known: &'a dyn Fn(&str) -> Option<ImageRecord>,
    /// Whether a layer that is here may be had with these keys of a login ([`access::keys`]) without fetching it.
    pub may_share: &'a dyn Fn(&str, &BTreeSet<String>) -> bool,
    pub wants: &'a Wants,
    /// Hears how far it is.
    pub tell: &'a dyn Fn(Progress),
    /// Unix seconds.
    pub now: i64,
}

impl Pull<'_> {
    /// Fetches what is missing of the image and returns its record.
    ///
    /// # Errors
    /// The error of the last place tried, which is the registry itself; fetched layers stay for the next attempt.
    pub fn run(&self, reference: &Reference) -> Result<ImageRecord, ImageError> {
        self.ask(reference, |mut repository| match self.unchanged(&mut repository, reference)? {
            Some(record) => Ok(record),
            None => self.fetch(&mut repository, reference),
        })
    }

    /// The record of the image if it is here and the registry has no other by this name; fetches nothing.
    ///
    /// # Errors
    /// Same as [`Pull::run`].
    pub fn check(&self, reference: &Reference) -> Result<Option<ImageRecord>, ImageError> {
        self.ask(reference, |mut repository| self.unchanged(&mut repository, reference))
    }

    /// One place after the other.
    fn ask<T>(
        &self,
        reference: &Reference,
        work: impl Fn(Repository<'_>) -> Result<T, ImageError>,
    ) -> Result<T, ImageError> {
        let config = registry_for(self.registries, &reference.registry);
        let mut places = endpoints(&config, &reference.registry).into_iter().peekable();
        let from =
            |place: Endpoint| work(Repository::new(place, &config, reference, self.keyring, self.limits, self.proxy)?);
        loop {
            let Some(place) = places.next() else {
                return Err(ImageError::InvalidName { name: reference.to_string(), why: "it names no registry" });
            };
            let mut done = from(place.clone());
            if let Some(plain) = done.as_ref().err().and_then(|error| without_tls(&place, error)) {
                done = from(plain);
            }
            match done {
                // Content that is wrong in itself would be so everywhere.
                Err(
                    error @ (ImageError::Unavailable { .. }
                    | ImageError::Refused { .. }
                    | ImageError::WrongDigest { .. }
                    | ImageError::NoPlatform { .. }),
                ) if places.peek().is_some() => log::warn!("{error}; asking the next place"),
                done => return done,
            }
        }
    }

    fn unchanged(
        &self,
        repository: &mut Repository<'_>,
        reference: &Reference,
    ) -> Result<Option<ImageRecord>, ImageError> {
        let image = reference.to_string();
        if self.complete(&image).is_none() {
            return Ok(None);
        }
        let Some(digest) = repository.head(reference.manifest())? else { return Ok(None) };
        let record = self.complete(&format!("{}@{digest}", reference.name()));
        Ok(record.map(|record| self.named(record, [image], repository, reference)))
    }

    fn fetch(&self, repository: &mut Repository<'_>, reference: &Reference) -> Result<ImageRecord, ImageError> {
        let image = reference.to_string();
        let top = repository.manifest(reference.manifest())?;
        let names = [image.clone(), format!("{}@{}", reference.name(), top.digest)];
        if let Some(record) = self.complete(&names[1]) {
            return Ok(self.named(record, names, repository, reference));
        }
        let more = |digest: &str| Ok(repository.manifest(digest)?.bytes);
        let manifest = assemble::manifest(&top.bytes, &top.digest, self.wanted, &image, more)?;
        // By what the manifest says, before any of it is fetched.
        let size = assemble::size(&manifest);
        ImageError::bound(size, self.limits.image_bytes, || format!("size of {image}"))?;
        let configuration = parse_configuration(&repository.small_blob(&manifest.config.digest)?, &image)?;
        // Only after the registry has sent it: knowing a digest gives no right to its content.
        let keys = repository.used().map(access::keys).unwrap_or_default();
        if let Some(record) = self.complete(&manifest.config.digest)
            && access::is_open_to(&record.access, &keys)
        {
            return Ok(self.named(record, names, repository, reference));
        }
        assemble::check(&configuration, manifest.layers.len(), self.wanted, self.limits, &image)?;
        let open_to = access::after_pull(None, &reference.name(), keys.clone());
        let (id, sizes) = (&manifest.config.digest, manifest.layers.iter().map(|layer| layer.size).collect());
        self.wants.begin(self.layers.incoming(), id, &configuration.diff_ids, sizes, open_to)?;
        let (mut unpacked, mut fetched) = (0_u64, 0_u64);
        for (layer, diff_id) in manifest.layers.iter().zip(&configuration.diff_ids) {
            let tell = |part| (self.tell)(Progress { bytes: fetched.saturating_add(part), total: size });
            self.layer(repository, layer, diff_id, &keys, &image, &tell)?;
            fetched = fetched.saturating_add(layer.size);
            unpacked = unpacked.saturating_add(self.layers.contents(diff_id).unwrap_or_default().bytes);
            assemble::check_unpacked(unpacked, self.limits, &image)?;
        }
        let record =
            assemble::record(manifest.config.digest, names.to_vec(), configuration, self.wanted, size, self.now);
        Ok(self.named(record, names, repository, reference))
    }

    /// Makes a layer be there, rightfully.
    fn layer(
        &self,
        repository: &mut Repository<'_>,
        layer: &Descriptor,
        diff_id: &str,
        keys: &BTreeSet<String>,
        image: &str,
        tell: &dyn Fn(u64),
    ) -> Result<(), ImageError> {
        if self.layers.has(diff_id) && (self.may_share)(diff_id, keys) {
            return Ok(());
        }
        let claim = download::blob(repository, layer, self.layers.incoming(), self.limits, tell)?;
        let path = &claim.path;
        let file = File::open(path).map_err(ImageError::io(path, "cannot read the download"))?;
        let source = BufReader::with_capacity(64 * 1024, file);
        // One that is here for others: that this registry has it too is all there is to see.
        let added = match self.layers.has(diff_id) {
            true => self.layers.prove(diff_id, source, self.limits, image),
            false => self.layers.add(diff_id, source, self.limits, image),
        };
        // A layer that does not unpack never will; one that did is needed no more.
        let full = matches!(&added, Err(ImageError::Io { .. }));
        if !full {
            let _ = fs::remove_file(path);
        }
        added?;
        self.wants.brought(diff_id);
        Ok(())
    }

    /// An image of this node with all its layers.
    fn complete(&self, key: &str) -> Option<ImageRecord> {
        (self.known)(key).filter(|record| record.layers.iter().all(|layer| self.layers.has(layer)))
    }

    /// Returns the record with these additional names, accessible with the login that was used.
    fn named<const N: usize>(
        &self,
        mut record: ImageRecord,
        names: [String; N],
        repository: &Repository<'_>,
        reference: &Reference,
    ) -> ImageRecord {
        let with = repository.used().map(access::keys).unwrap_or_default();
        let (earlier, open_to) = (self.known)(&record.id).map(|known| (known.references, known.access)).unzip();
        record.access = access::after_pull(open_to, &reference.name(), with);
        let earlier = earlier.unwrap_or_default();
        let all: BTreeSet<String> = record.references.drain(..).chain(earlier).chain(names).into_set();
        record.references = all.into_iter().collect();
        record.pulled_at = self.now;
        record
    }
}
