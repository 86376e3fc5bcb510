//! A version of the programs that comes as an image: pulled like any other (in pieces, over again after a cut, with the node's
//! registries and logins), named by its digest alone. Its files are those of a bundle, at the top.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use edge_runtime::image::Reference;
use edge_runtime::image::layers::Layers;
use edge_runtime::paths::Paths;
use edge_runtime::store::Store;
use edge_runtime::store::image_record::ImageRecord;
use sampan_launcher::versions::{DAEMON, Versions};
use sampan_sys::files::replace;

use super::Arrived;
use super::bundle::{FILES, put};
use super::error::UpgradeError;
use crate::program::said;

/// Number of pulls if the image is deleted before its programs are copied: unlike a new image, one that was here before
/// may be collected at any time.
const TRIES: u32 = 2;

/// The digest that a reference ends in: without one, what comes is whatever the registry has that day.
///
/// # Errors
/// It does not end in a digest.
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
/// It cannot be pulled, or is not a version of these programs.
pub(crate) fn fetch(
    image: &str,
    patience: Duration,
    paths: &Paths,
    versions: &Versions,
) -> Result<Arrived, UpgradeError> {
    let bad = |why: String| UpgradeError::Bad { what: image.to_owned(), why };
    digest_of(image)?;
    let until = Instant::now() + patience;
    for _ in 0..TRIES {
        pull(image, None, until.saturating_duration_since(Instant::now()), paths).map_err(bad)?;
        if let Some(arrived) = take(image, paths, versions)? {
            return Ok(arrived);
        }
    }
    Err(bad("was pulled and is not there: it was removed at once, perhaps for want of room".into()))
}

/// Copies the programs out of a local image; `None` if it is missing. It holds the lock against garbage collection: in
/// a disk shortage an image without containers may be deleted at any moment.
fn take(image: &str, paths: &Paths, versions: &Versions) -> Result<Option<Arrived>, UpgradeError> {
    let bad = |why: String| UpgradeError::Bad { what: image.to_owned(), why };
    let reference = Reference::parse(image).map_err(|error| bad(error.to_string()))?;
    let arrived = Arrived::room(versions, digest_of(image)?)?;
    let _lock = Layers::new(paths).lock().map_err(|error| bad(error.to_string()))?;
    let store = Store::open_shared(&paths.store()).map_err(|error| bad(error.to_string()))?;
    let record = store.image_by_reference(&reference.to_string()).map_err(|error| bad(error.to_string()))?;
    let Some(record) = record else { return Ok(None) };
    for name in FILES {
        if let Some(path) = find(&record, paths, name) {
            let mut file = File::open(&path).map_err(UpgradeError::io(&path))?;
            put(&mut file, &arrived.folder, name).map_err(UpgradeError::io(&path))?;
        }
    }
    Ok(Some(arrived))
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
    command.args(["pull", "--quiet", "--root"]).arg(paths.root());
    let file = paths.run().join(format!("logins-{}", std::process::id()));
    if let Some(logins) = logins {
        // Below /run, which is not on a disk.
        replace(&file, logins.as_bytes(), false).map_err(|error| format!("{}: {error}", file.display()))?;
        command.arg("--auth").arg(&file);
    }
    // Not a flag, whatever it begins with.
    command.args(["--", image]);
    let done = said(command, patience);
    let _ = fs::remove_file(&file);
    let (status, text) = done.map_err(|error| format!("{}: {error}", program.display()))?;
    // The last line is the reason; lines of the log come before.
    let why = text.lines().last().unwrap_or_default().trim_start_matches("edge-runtime: ").to_owned();
    if status.success() { Ok(()) } else { Err(why) }
}

#[cfg(test)]
mod tests {
    use edge_runtime::store::image_record::{Access, ImageConfig};

    use super::*;

    #[test]
    fn an_image_of_programs_has_a_digest() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        assert_eq!(digest_of(&format!("r:5000/a@{digest}")).unwrap(), digest);
        for wrong in ["a", "a:1", "a@sha256:12", "a@sha512:ab", &format!("a@sha256:{}", "x".repeat(64))] {
            digest_of(wrong).unwrap_err();
        }
    }

    #[test]
    fn an_image_stays_while_it_is_read_and_one_that_was_collected_is_not_here() {
        let temp = tempfile::tempdir().unwrap();
        let (paths, versions) = (Paths::new(temp.path()), Versions::new(temp.path(), temp.path()));
        let (image, layer) = (format!("r:5000/a@sha256:{}", "ab".repeat(32)), "cd".repeat(32));
        let layers = Layers::new(&paths);
        layers.prepare().unwrap();
        fs::create_dir_all(paths.layers().join(&layer)).unwrap();
        fs::write(paths.layers().join(&layer).join("manifest.json"), "{}").unwrap();
        let record = ImageRecord {
            id: format!("sha256:{}", "ef".repeat(32)),
            references: vec![Reference::parse(&image).unwrap().to_string()],
            layers: vec![format!("sha256:{layer}")],
            config: ImageConfig::default(),
            size: 1,
            pulled_at: 0,
            access: Access::default(),
        };
        let mut store = Store::open_shared(&paths.store()).unwrap();
        store.write_durable(|writer| writer.image_put(&record)).unwrap();
        // A garbage collection in progress.
        let lock = layers.lock().unwrap();
        let taken = std::thread::scope(|scope| {
            let taking = scope.spawn(|| take(&image, &paths, &versions));
            std::thread::sleep(Duration::from_millis(200));
            assert!(!taking.is_finished());
            store.write_durable(|writer| writer.image_remove(&record.id)).unwrap();
            drop(lock);
            taking.join().unwrap()
        });
        assert!(taken.unwrap().is_none());
        store.write_durable(|writer| writer.image_put(&record)).unwrap();
        let arrived = take(&image, &paths, &versions).unwrap().unwrap();
        assert_eq!(fs::read(arrived.folder.join("manifest.json")).unwrap(), b"{}");
        assert_eq!(arrived.digest, digest_of(&image).unwrap());
    }
}
