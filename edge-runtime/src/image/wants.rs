//! Notes on pulls and imports in progress, in `incoming`: the layers that they need, so that these are not removed as
//! leftovers, and the layers that they fetched themselves, so that the next attempt can continue. A note outlives an
//! interrupted attempt; its lock does not. An export has a note, too, which it does not outlive.

use std::cell::RefCell;
use std::fs;
use std::io::{self, Seek, Write};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::image::ImageError;
use crate::image::digest::hex;
use crate::image::incoming::{Claim, Incoming, WANT, is_claimed, is_older};
use crate::image::layers::read_json;
use crate::store::image_record::Access;

/// Begins the id of a note of an export, in place of an image's.
pub const EXPORT: &str = "export-";

/// What a note says.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Want {
    /// Diff ids of the image.
    pub layers: Vec<String>,
    /// Those that were fetched for it.
    pub brought: Vec<String>,
    /// Logins that may use the fetched layers.
    pub access: Access,
    /// Bytes of each layer as it is fetched or imported, for `edge-admin progress`.
    #[serde(skip_deserializing)]
    pub sizes: Vec<u64>,
}

/// The notes of this process.
#[derive(Debug, Default)]
pub struct Wants(RefCell<Vec<(Want, Option<Claim>, std::path::PathBuf)>>);

impl Wants {
    /// Begins a note for image `id`. Takes over the note of an earlier attempt, but trusts only layers that were
    /// fetched for the same users.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(
        &self,
        incoming: &Incoming,
        id: &str,
        layers: &[String],
        sizes: Vec<u64>,
        access: Access,
    ) -> Result<(), ImageError> {
        let path = incoming.dir().join(format!("{WANT}{}", hex(id)));
        let earlier: Want = read_json(&path).unwrap_or_default();
        let brought = if earlier.access == access { earlier.brought } else { Vec::new() };
        let want = Want { layers: layers.to_vec(), brought, access, sizes };
        let begin = || -> io::Result<Option<Claim>> {
            let _lock = incoming.lock()?;
            let file = fs::File::options().write(true).create(true).truncate(false).open(&path)?;
            // Held by another process that wants the same image: its note says the same.
            let Ok(held) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else { return Ok(None) };
            let mut claim = Claim { path: path.clone(), held };
            write(&mut claim, &want)?;
            Ok(Some(claim))
        };
        let claim = begin().map_err(ImageError::io(&path, "cannot write"))?;
        self.0.borrow_mut().push((want, claim, path));
        Ok(())
    }

    /// The image that was started last has this layer by its own pull.
    pub fn brought(&self, diff_id: &str) {
        let mut all = self.0.borrow_mut();
        let Some((want, claim, path)) = all.last_mut() else { return };
        want.brought.push(diff_id.to_owned());
        // Costs the next try a download, nothing else.
        if let Some(Err(error)) = claim.as_mut().map(|claim| write(claim, want)) {
            log::warn!("{}: {error}", path.display());
        }
    }

    /// The images have records now.
    pub fn done(&self) {
        for (_, claim, path) in self.0.borrow_mut().drain(..) {
            if claim.is_some() {
                // What stays is cleared when it is old.
                let _ = fs::remove_file(path);
            }
        }
    }
}

impl Drop for Wants {
    fn drop(&mut self) {
        // A try that failed and brought nothing has nothing to go on with.
        for (want, claim, path) in self.0.borrow_mut().drain(..) {
            if claim.is_some() && want.brought.is_empty() {
                let _ = fs::remove_file(path);
            }
        }
    }
}

fn write(claim: &mut Claim, want: &Want) -> io::Result<()> {
    claim.held.set_len(0)?;
    claim.held.rewind()?;
    claim.held.write_all(&serde_json::to_vec(want)?)
}

/// Reads all notes. Those without a running process that are complete or of an export, or were not continued for `keep`,
/// are removed and returned second. `is_known` says whether the image with this [`hex`] has its record and its layers: its process
/// was then killed before it could remove the note. The caller holds the lock.
///
/// # Errors
/// The folder cannot be read, or a note not be removed.
pub(super) fn sort(
    incoming: &Incoming,
    keep: Duration,
    is_known: impl Fn(&str) -> bool,
) -> io::Result<(Vec<Want>, Vec<Want>)> {
    let (mut live, mut old) = (Vec::new(), Vec::new());
    for path in incoming.entries(WANT)? {
        let want: Option<Want> = read_json(&path);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // One that a power cut has emptied tells nothing.
        let id = name.strip_prefix(WANT).unwrap_or_default();
        let is_done = want.is_none() || id.starts_with(EXPORT) || is_known(id);
        let want = want.unwrap_or_default();
        if !is_claimed(&path) && (is_done || is_older(&path, keep)) {
            fs::remove_file(&path)?;
            old.push(want);
        } else {
            live.push(want);
        }
    }
    Ok((live, old))
}

/// All notes.
pub(super) fn all(incoming: &Incoming) -> Vec<Want> {
    incoming.entries(WANT).unwrap_or_default().iter().filter_map(|path| read_json(path)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn folder() -> (tempfile::TempDir, Incoming) {
        let folder = tempfile::tempdir().unwrap();
        let incoming = Incoming::new(folder.path().to_owned());
        (folder, incoming)
    }

    fn private() -> Access {
        Access::from([("registry.example/app".to_owned(), BTreeSet::from(["key".to_owned()]))])
    }

    fn begun(incoming: &Incoming, id: &str, access: Access) -> Wants {
        let wants = Wants::default();
        wants.begin(incoming, id, &["a".to_owned(), "b".to_owned()], vec![1, 2], access).unwrap();
        wants
    }

    /// The layers that the notes say were fetched.
    fn brought(incoming: &Incoming) -> Vec<Vec<String>> {
        all(incoming).into_iter().map(|want| want.brought).collect()
    }

    #[test]
    fn fetched_layers_are_for_the_same_logins_alone() {
        let (_folder, incoming) = folder();
        begun(&incoming, "sha256:1", private()).brought("a");
        assert_eq!(brought(&incoming), [["a"]], "the note outlives the attempt");
        drop(begun(&incoming, "sha256:1", private()));
        assert_eq!(brought(&incoming), [["a"]], "the next attempt goes on from it");
        let other = begun(&incoming, "sha256:1", Access::new());
        assert_eq!(brought(&incoming), [Vec::<String>::new()], "an attempt of other users does not");
        drop(other);
        assert!(brought(&incoming).is_empty());
    }

    #[test]
    fn note_goes_with_a_pull_that_is_done_or_fetched_nothing() {
        let (_folder, incoming) = folder();
        let wants = begun(&incoming, "sha256:1", private());
        wants.brought("a");
        wants.done();
        assert!(brought(&incoming).is_empty());
        drop(begun(&incoming, "sha256:1", private()));
        assert!(brought(&incoming).is_empty());
    }

    #[test]
    fn second_pull_of_an_image_leaves_the_note_of_the_first() {
        let (_folder, incoming) = folder();
        let first = begun(&incoming, "sha256:1", private());
        first.brought("a");
        let second = begun(&incoming, "sha256:1", private());
        second.brought("b");
        second.done();
        assert_eq!(brought(&incoming), [["a"]]);
        first.done();
        assert!(brought(&incoming).is_empty());
    }

    #[test]
    fn notes_of_ended_processes_are_removed_when_complete_or_old() {
        let (_folder, incoming) = folder();
        let under_way = begun(&incoming, "sha256:aa", private());
        for id in ["sha256:bb", "sha256:cc", "export-1"] {
            begun(&incoming, id, private()).brought(id);
        }
        fs::write(incoming.dir().join(format!("{WANT}dd")), "").unwrap();
        let of = |wants: Vec<Want>| wants.into_iter().flat_map(|want| want.brought).collect::<BTreeSet<String>>();
        let (live, old) = sort(&incoming, HOUR, |id| id == "bb").unwrap();
        assert_eq!((live.len(), old.len()), (2, 3), "the empty one, too");
        assert_eq!(of(old), BTreeSet::from(["sha256:bb", "export-1"].map(str::to_owned)));
        assert_eq!(of(live), BTreeSet::from(["sha256:cc".to_owned()]), "and the one under way");
        let (live, old) = sort(&incoming, Duration::ZERO, |_| true).unwrap();
        assert_eq!((live.len(), old.len()), (1, 1), "one under way stays, whatever its age");
        drop(under_way);
        assert!(all(&incoming).is_empty());
    }
}
