//! A layer on its way onto the disk: unpacked, checked, and made visible.

use std::fs::{self, File};
use std::io::{self, BufRead};
use std::path::Path;

use super::{Contents, Layers, count};
use crate::image::ImageError;
use crate::image::compress::plain;
use crate::image::digest::{HashingReader, hex};
use crate::image::limits::Limits;
use crate::image::rootfs::layer_dir;
use crate::image::unpack::unpack;
use crate::sys::delete::delete_tree;
use crate::sys::files::{replace, unless_missing};

impl Layers {
    /// Unpacks a layer (compressed or not) and makes it visible when it is whole, is what `diff_id` says, and is on
    /// the medium. `what` names its source in errors. Waits for another process that unpacks the same layer.
    ///
    /// # Errors
    /// A hostile or cut archive, another digest, a full disk: nothing of the layer is visible then.
    pub fn add(&self, diff_id: &str, source: impl BufRead, limits: &Limits, what: &str) -> Result<(), ImageError> {
        let target = layer_dir(&self.layers, diff_id)?;
        let had = self.has(diff_id);
        let half = self.incoming.claim_folder(&format!("layer-{}", hex(diff_id)));
        let half = half.map_err(self.incoming.error("cannot make a folder in"))?;
        if !had && self.has(diff_id) {
            // By the process that was waited for.
            let _ = fs::remove_dir(&half.path);
            return Ok(());
        }
        let made = self.unpack_checked(diff_id, source, limits, what, &half.path).and_then(|contents| {
            let stored = self.publish(diff_id, &half.path, &target, &contents);
            stored.map_err(ImageError::io(&target, "cannot store the layer"))
        });
        if made.is_err()
            && let Err(error) = delete_tree(&half.path)
        {
            log::warn!("{} stays until the next sweep: {error}", half.path.display());
        }
        made
    }

    /// Whether `source` has the content of the layer, which is here: what its sender shows with it is that it may be used.
    ///
    /// # Errors
    /// It has other content.
    pub fn prove(&self, diff_id: &str, source: impl BufRead, limits: &Limits, what: &str) -> Result<(), ImageError> {
        let broken = |error| broken(diff_id, what, &error);
        let mut reader = HashingReader::new(plain(source).map_err(broken)?, stream_limit(limits));
        io::copy(&mut reader, &mut io::sink()).map_err(broken)?;
        same(diff_id, reader.finish().0, what)
    }

    fn unpack_checked(
        &self,
        diff_id: &str,
        source: impl BufRead,
        limits: &Limits,
        what: &str,
        half: &Path,
    ) -> Result<(Contents, Vec<String>), ImageError> {
        let broken = |error| broken(diff_id, what, &error);
        let mut reader = HashingReader::new(plain(source).map_err(broken)?, stream_limit(limits));
        let undescribed = unpack(&mut reader, half, limits).map_err(|error| match error {
            ImageError::Entry { entry, why } => broken(io::Error::other(format!("entry {entry:?}: {why}"))),
            other => other,
        })?;
        // The digest covers what stands behind the end mark, too.
        io::copy(&mut reader, &mut io::sink()).map_err(broken)?;
        same(diff_id, reader.finish().0, what)?;
        let contents = count(half).map_err(|error| match error.raw_os_error() {
            // Because of links the layer is deeper than any path.
            Some(nix::libc::ENAMETOOLONG) => broken(error),
            _ => ImageError::io(half, "cannot read")(error),
        })?;
        Ok((contents, undescribed))
    }

    fn publish(
        &self,
        diff_id: &str,
        half: &Path,
        target: &Path,
        (contents, undescribed): &(Contents, Vec<String>),
    ) -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        // A tar without an entry for its root leaves the mode of the half-made folder.
        if fs::metadata(half)?.permissions().mode() & 0o777 == 0 {
            fs::set_permissions(half, fs::Permissions::from_mode(0o755))?;
        }
        // One call for all files instead of a sync of each; most is on the medium already.
        nix::unistd::syncfs(File::open(half)?)?;
        // Drafts are made under the lock: what the next to hold it finds of them is left over.
        let lock = self.incoming.lock()?;
        // An earlier copy is there only if it was found broken.
        self.incoming.set_aside(target)?;
        match undescribed.is_empty() {
            true => drop(unless_missing(fs::remove_file(self.folders_file(diff_id)))?),
            false => replace(&self.folders_file(diff_id), &serde_json::to_vec(undescribed)?, true)?,
        }
        replace(&self.counts_file(diff_id), &serde_json::to_vec(contents)?, true)?;
        fs::rename(half, target)?;
        drop(lock);
        File::open(&self.layers)?.sync_all()
    }
}

/// Headers and padding come on top of the content that is counted while unpacking.
fn stream_limit(limits: &Limits) -> u64 {
    limits.layer_bytes.saturating_add(limits.entries.saturating_mul(1024))
}

fn broken(diff_id: &str, what: &str, error: &io::Error) -> ImageError {
    ImageError::broken(what, format!("layer {diff_id}"), error)
}

fn same(diff_id: &str, found: String, what: &str) -> Result<(), ImageError> {
    ImageError::compare(found, diff_id, || format!("the unpacked content of a layer of {what}"))
}
