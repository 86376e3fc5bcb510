//! A version of the programs that comes as an image: pulled like any other (in pieces, over again after a cut, with the node's
//! registries and logins), named by its digest alone. Its files are those of a bundle, at the top.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use edge_runtime::image::Reference;
use edge_runtime::paths::Paths;
use edge_runtime::store::Store;
use edge_runtime::store::image_record::ImageRecord;
use sampan_launcher::versions::{DAEMON, Versions};
use sampan_sys::files::replace;

use super::bundle::{FILES, put};
use super::{Arrived, UpgradeError};
use crate::program::said;

/// The digest that a reference ends in: without one, what comes is whatever the registry has that day.
///
/// # Errors
/// It has none.
pub(crate) fn digest_of(image: &str) -> Result<&str, UpgradeError> {
    let bad = |why: &str| UpgradeError::Bad { what: image.to_owned(), why: why.to_owned() };
    let (_, digest) =
        image.rsplit_once('@').ok_or_else(|| bad("an image of programs is named by its digest, as NAME@sha256:..."))?;
    let hex =
        digest.strip_prefix("sha256:").filter(|hex| hex.len() == 64 && hex.bytes().all(|c| c.is_ascii_hexdigit()));
    hex.map(|_| digest).ok_or_else(|| bad("its digest is not sha256: and 64 hexadecimal digits"))
}

/// Fetches it, with the logins of the node, and puts its programs into their folder.
///
/// # Errors
/// It cannot be pulled, or is no version of these programs.
pub(crate) fn fetch(
    image: &str,
    patience: Duration,
    paths: &Paths,
    versions: &Versions,
) -> Result<Arrived, UpgradeError> {
    let bad = |why: String| UpgradeError::Bad { what: image.to_owned(), why };
    let digest = digest_of(image)?.to_owned();
    pull(image, None, patience, paths).map_err(bad)?;
    let reference = Reference::parse(image).map_err(|error| bad(error.to_string()))?;
    let store = Store::open_shared(&paths.store()).map_err(|error| bad(error.to_string()))?;
    let record = store.image_by_reference(&reference.to_string()).map_err(|error| bad(error.to_string()))?;
    let record = record
        .ok_or_else(|| bad("was pulled and is not there: it was removed at once, perhaps for want of room".into()))?;
    let arrived = Arrived { folder: Arrived::room(versions)?, digest };
    for name in FILES {
        if let Some(path) = find(&record, paths, name) {
            let mut file = File::open(&path).map_err(UpgradeError::io(&path))?;
            put(&mut file, &arrived.folder, name).map_err(UpgradeError::io(&path))?;
        }
    }
    Ok(arrived)
}

/// In the topmost layer that has it. Only a file: a link would lead out of the image.
fn find(record: &ImageRecord, paths: &Paths, name: &str) -> Option<PathBuf> {
    let layers = record.layers.iter().rev().filter_map(|layer| layer.strip_prefix("sha256:"));
    layers.map(|hex| paths.layers().join(hex).join(name)).find(|path| is_file(path))
}

fn is_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|about| about.is_file())
}

/// `edge-runtime pull` of the version that this program is of.
///
/// # Errors
/// What it has said, or that it took too long: the next one goes on where it was.
pub(crate) fn pull(image: &str, logins: Option<&str>, patience: Duration, paths: &Paths) -> Result<(), String> {
    let program = std::env::current_exe().unwrap_or_default().with_file_name(DAEMON);
    let mut command = Command::new(&program);
    command.args(["pull", image, "--root"]).arg(paths.root());
    let file = paths.run().join(format!("logins-{}", std::process::id()));
    if let Some(logins) = logins {
        // Below /run, which is no disk.
        replace(&file, logins.as_bytes(), false).map_err(|error| format!("{}: {error}", file.display()))?;
        command.arg("--auth").arg(&file);
    }
    let done = said(command, patience);
    let _ = fs::remove_file(&file);
    let (status, text) = done.map_err(|error| format!("{}: {error}", program.display()))?;
    // The last line is the reason; lines of the log come before.
    let why = text.lines().last().unwrap_or_default().trim_start_matches("edge-runtime: ").to_owned();
    if status.success() { Ok(()) } else { Err(why) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_of_programs_has_a_digest() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        assert_eq!(digest_of(&format!("r:5000/a@{digest}")).unwrap(), digest);
        for wrong in ["a", "a:1", "a@sha256:12", "a@sha512:ab", &format!("a@sha256:{}", "x".repeat(64))] {
            digest_of(wrong).unwrap_err();
        }
    }
}
