//! Unpacked layers on disk. Owns the folders `layers` and `incoming` and the rule that a layer is visible only when
//! all of it is durable; knows neither images nor registries.
//!
//! A layer is unpacked below `incoming`, written out, and renamed into place. Beside it stands `<hex>.layer`, a small
//! file with the number of its entries and bytes: a medium that lied about a write leaves it empty or the counts wrong,
//! and the layer is fetched again.

use std::fs::{self, File};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::image::ImageError;
use crate::image::compress::plain;
use crate::image::digest::{HashingReader, hex};
use crate::image::limits::Limits;
use crate::image::rootfs::layer_dir;
use crate::image::unpack::{remove_tree, unpack};
use crate::paths::Paths;

/// The layers of one node.
#[derive(Clone, Debug)]
pub struct Layers {
    layers: PathBuf,
    incoming: PathBuf,
}

/// What was counted when the layer was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    pub entries: u64,
    /// Of regular files; a file with two names counts twice.
    pub bytes: u64,
}

/// Held by whoever changes the folders: one helper at a time, and not while the daemon sweeps.
pub type Lock = Flock<File>;

impl Layers {
    pub fn new(paths: &Paths) -> Self {
        Self { layers: paths.layers(), incoming: paths.incoming() }
    }

    pub fn incoming(&self) -> &Path {
        &self.incoming
    }

    /// Makes the folders and waits until no other process changes them.
    ///
    /// # Errors
    /// The folders cannot be made.
    pub fn lock(&self) -> Result<Lock, ImageError> {
        let file = self.lock_file()?;
        Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, error)| ImageError::io(&self.incoming, "cannot lock")(error.into()))
    }

    /// As [`Layers::lock`], but none when another process has the lock.
    ///
    /// # Errors
    /// The folders cannot be made.
    pub fn try_lock(&self) -> Result<Option<Lock>, ImageError> {
        Ok(Flock::lock(self.lock_file()?, FlockArg::LockExclusiveNonblock).ok())
    }

    fn lock_file(&self) -> Result<File, ImageError> {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        for dir in [&self.layers, &self.incoming] {
            // Set-user-id programs of images must not be within reach of the host's users.
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .map_err(ImageError::io(dir, "cannot make"))?;
        }
        let path = self.incoming.join("lock");
        File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(ImageError::io(path, "cannot open"))
    }

    /// Whether the layer is there, by its folder and its counts. Cheap; see [`Layers::verify`] for the rest.
    pub fn has(&self, diff_id: &str) -> bool {
        self.contents(diff_id).is_some() && layer_dir(&self.layers, diff_id).is_ok_and(|dir| dir.is_dir())
    }

    /// Whether all entries and bytes that were counted are still there. Walks the whole layer.
    pub fn verify(&self, diff_id: &str) -> bool {
        let counted = layer_dir(&self.layers, diff_id).ok().and_then(|dir| count(&dir).ok());
        counted.is_some() && counted == self.contents(diff_id)
    }

    /// How long the layer has been there.
    pub fn age(&self, diff_id: &str) -> Option<std::time::Duration> {
        fs::metadata(self.counts_file(diff_id)).and_then(|meta| meta.modified()).ok()?.elapsed().ok()
    }

    fn contents(&self, diff_id: &str) -> Option<Contents> {
        serde_json::from_slice(&fs::read(self.counts_file(diff_id)).ok()?).ok()
    }

    fn counts_file(&self, diff_id: &str) -> PathBuf {
        self.layers.join(format!("{}.layer", hex(diff_id)))
    }

    /// Unpacks a layer (compressed or not) and makes it visible when it is whole, is what `diff_id` says, and is on
    /// the medium. `what` names its source in errors.
    ///
    /// # Errors
    /// A hostile or cut archive, another digest, a full disk: nothing of the layer is visible then.
    pub fn add(&self, diff_id: &str, source: impl BufRead, limits: &Limits, what: &str) -> Result<(), ImageError> {
        let target = layer_dir(&self.layers, diff_id)?;
        let half = self.incoming.join(format!("layer-{}", hex(diff_id)));
        remove_tree(&half).map_err(ImageError::io(&half, "cannot remove"))?;
        let made = self.unpack_checked(diff_id, source, limits, what, &half).and_then(|contents| {
            self.publish(diff_id, &half, &target, contents).map_err(ImageError::io(&target, "cannot store the layer"))
        });
        if made.is_err() {
            let _ = remove_tree(&half);
        }
        made
    }

    fn unpack_checked(
        &self,
        diff_id: &str,
        source: impl BufRead,
        limits: &Limits,
        what: &str,
        half: &Path,
    ) -> Result<Contents, ImageError> {
        let broken = |error: io::Error| ImageError::Broken {
            image: what.to_owned(),
            what: format!("layer {diff_id}"),
            why: error.to_string(),
        };
        fs::create_dir(half).map_err(ImageError::io(half, "cannot make"))?;
        // Headers and padding come on top of the content that unpack counts.
        let limit = limits.layer_bytes.saturating_add(limits.entries.saturating_mul(1024));
        let mut reader = HashingReader::new(plain(source).map_err(broken)?, limit);
        unpack(&mut reader, half, limits).map_err(|error| match error {
            ImageError::Entry { entry, why } => broken(io::Error::other(format!("entry {entry:?}: {why}"))),
            other => other,
        })?;
        // The digest covers what stands behind the end mark, too.
        io::copy(&mut reader, &mut io::sink()).map_err(broken)?;
        let (found, _) = reader.finish();
        if found != diff_id {
            let what = format!("the unpacked content of a layer of {what}");
            return Err(ImageError::WrongDigest { what, wanted: diff_id.to_owned(), found });
        }
        count(half).map_err(ImageError::io(half, "cannot read"))
    }

    fn publish(&self, diff_id: &str, half: &Path, target: &Path, contents: Contents) -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        // A tar without an entry for its root leaves the mode of the half-made folder.
        if fs::metadata(half)?.permissions().mode() & 0o777 == 0 {
            fs::set_permissions(half, fs::Permissions::from_mode(0o755))?;
        }
        // One call for all files instead of a sync of each.
        nix::unistd::syncfs(File::open(half)?)?;
        // An earlier copy is there only if it was found broken.
        remove_tree(target)?;
        let counts = self.counts_file(diff_id);
        let draft = counts.with_extension("draft");
        let mut file = File::create(&draft)?;
        file.write_all(&serde_json::to_vec(&contents)?)?;
        file.sync_all()?;
        fs::rename(&draft, &counts)?;
        fs::rename(half, target)?;
        File::open(&self.layers)?.sync_all()
    }

    /// Diff ids of all layers on disk, whole or not.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn list(&self) -> Result<Vec<String>, ImageError> {
        let mut ids = Vec::new();
        let entries = match fs::read_dir(&self.layers) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ids),
            other => other.map_err(ImageError::io(&self.layers, "cannot read"))?,
        };
        for entry in entries {
            let name = entry.map_err(ImageError::io(&self.layers, "cannot read"))?.file_name();
            let name = name.to_string_lossy();
            let id = format!("sha256:{}", name.strip_suffix(".layer").unwrap_or(&name));
            if crate::image::digest::is_sha256(&id) && !ids.contains(&id) {
                ids.push(id);
            }
        }
        Ok(ids)
    }

    /// Takes a layer out of sight at once; its files go with [`Layers::empty_incoming`].
    ///
    /// # Errors
    /// The rename fails.
    pub fn retire(&self, diff_id: &str) -> Result<(), ImageError> {
        let dir = layer_dir(&self.layers, diff_id)?;
        let gone = self.incoming.join(format!("gone-{}", hex(diff_id)));
        let not_found = |error: io::Error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) };
        remove_tree(&gone)
            .and_then(|()| fs::remove_file(self.counts_file(diff_id)).or_else(not_found))
            .and_then(|()| fs::rename(&dir, &gone).or_else(not_found))
            .map_err(ImageError::io(dir, "cannot remove the layer"))
    }

    /// Removes half-made layers and what was retired. Partial downloads younger than `keep_downloads` stay: the next
    /// pull goes on where they end. The caller holds the lock.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub fn empty_incoming(&self, keep_downloads: std::time::Duration) -> Result<(), ImageError> {
        let failed = ImageError::io(&self.incoming, "cannot clear");
        let clear = || -> io::Result<()> {
            for entry in fs::read_dir(&self.incoming)? {
                let entry = entry?;
                let name = entry.file_name();
                let name = name.to_string_lossy();
                let old = || {
                    let age = entry.metadata().and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
                    age.is_some_and(|age| age > keep_downloads)
                };
                if name != "lock" && (!name.starts_with("blob-") || old()) {
                    remove_tree(&entry.path())?;
                }
            }
            Ok(())
        };
        clear().map_err(failed)
    }
}

fn count(dir: &Path) -> io::Result<Contents> {
    let mut contents = Contents::default();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            contents.entries += 1;
            if kind.is_dir() {
                todo.push(entry.path());
            } else if kind.is_file() {
                contents.bytes += entry.metadata()?.len();
            }
        }
    }
    Ok(contents)
}

#[cfg(test)]
#[allow(clippy::print_stderr, reason = "a skipped test says why")]
mod tests;
