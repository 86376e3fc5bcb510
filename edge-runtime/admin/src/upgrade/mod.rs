//! Another version of the node's programs: its source, its permission, its checks, and the beginning of its trial. The
//! launcher does all that follows.
//!
//! | file | owns |
//! |---|---|
//! | `bundle` | a file that holds programs: what is in it, and unpacking it |
//! | `image` | the same from an image of the node |
//! | `signature` | who vouches for it |
//! | `age` | which of two versions is older |
//! | `check` | whether the programs run here |
//! | `begin` | putting it in force, on trial |

pub(crate) mod age;
pub(crate) mod begin;
pub(crate) mod bundle;
pub(crate) mod check;
mod error;
pub(crate) mod image;
pub(crate) mod signature;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use edge_runtime::paths::Paths;
use nix::fcntl::Flock;
use sampan_launcher::versions::Versions;
use sampan_sys::files::{private_dir, remove_tree};

use check::Manifest;
pub(crate) use error::UpgradeError;

/// A version that lies here and was not tried yet: its folder is gone with this value unless it is installed.
pub(crate) struct Arrived {
    pub(crate) folder: PathBuf,
    /// `sha256:...` of the received file.
    pub(crate) digest: String,
    coming: Option<Flock<File>>,
}

/// A version that has its place and is not on trial yet. It cannot be deleted while this value exists.
pub(crate) struct Installed {
    pub(crate) name: String,
    pub(crate) manifest: Manifest,
    _coming: Option<Flock<File>>,
}

impl Arrived {
    /// Creates an empty folder for the next version, after locking out other upgrades.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(crate) fn room(versions: &Versions, digest: &str) -> Result<Self, UpgradeError> {
        let folder = versions.folder().join("arriving");
        let coming = versions.lock_arrival(true).map_err(UpgradeError::io(&folder))?;
        remove_tree(&folder).map_err(UpgradeError::io(&folder))?;
        private_dir(&folder).map_err(UpgradeError::io(&folder))?;
        Ok(Self { folder, digest: digest.to_owned(), coming: Some(coming) })
    }

    /// Makes sure that it runs here, and gives it its place.
    ///
    /// # Errors
    /// It does not run here, or does not match its manifest.
    pub(crate) fn install(mut self, paths: &Paths, versions: &Versions) -> Result<Installed, UpgradeError> {
        let manifest = check::check(&self.folder, paths)?;
        let hex = self.digest.strip_prefix("sha256:").unwrap_or(&self.digest);
        let name = format!("{}-{}", manifest.version, hex.get(..12).unwrap_or(hex));
        if !Versions::is_name(&name) {
            let why = format!("'{}' is no version", manifest.version);
            return Err(UpgradeError::Bad { what: "manifest.json".into(), why });
        }
        if versions.read().current.as_deref() == Some(&*name) {
            return Err(UpgradeError::Refused(format!("version {name} is in force already")));
        }
        let place = versions.programs(Some(&name));
        remove_tree(&place).map_err(UpgradeError::io(&place))?;
        sync(&self.folder).map_err(UpgradeError::io(&self.folder))?;
        fs::rename(&self.folder, &place).map_err(UpgradeError::io(&place))?;
        sync(&versions.folder()).map_err(UpgradeError::io(&place))?;
        Ok(Installed { name, manifest, _coming: self.coming.take() })
    }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        // Useless but harmless; with its place it belongs to another.
        if self.coming.is_some() {
            let _ = remove_tree(&self.folder);
        }
    }
}

/// Files of a folder and their names, on the medium.
fn sync(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() {
            File::open(path)?.sync_all()?;
        }
    }
    File::open(folder)?.sync_all()
}
