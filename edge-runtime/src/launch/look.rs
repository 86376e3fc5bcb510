//! Everything that is done at paths behind which a foreign file system may lie, in the order in which the helper process
//! (the verb `look`) does it; [`super::looking`] is the daemon's side.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use sampan_json::SetField;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::user_ns;
use crate::sys::files::named;
use crate::sys::from_json::from_json;
use crate::volume::{self, Owning, VolumeError};

/// One thing to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Look {
    Volume(volume::look::Look),
    /// Shows `source` at `target` with the owners of the pod's user namespace, and tells the OCI configuration what the
    /// mount must keep.
    Map {
        volume: String,
        source: PathBuf,
        namespace: PathBuf,
        target: PathBuf,
        config: PathBuf,
    },
}

/// The one line that the helper prints for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Done,
    Failed(String),
    /// A helper of its own has to give the volume to the pod's group.
    Own(Owning),
}

impl Look {
    /// Where it looks.
    pub fn path(&self) -> &Path {
        match self {
            Self::Volume(look) => look.path(),
            Self::Map { source, .. } => source,
        }
    }

    /// Message for the user when it failed because of `problem`.
    pub fn failed(&self, problem: &str) -> String {
        match self {
            Self::Volume(look) => look.failed(problem),
            Self::Map { volume, .. } => format!("MountVolume.SetUp failed for volume {volume:?} : {problem}"),
        }
    }

    /// Does it, for as long as it takes.
    pub fn run(&self) -> Answer {
        match self {
            Self::Volume(look) => match look.run() {
                Ok(()) => Answer::Done,
                Err(VolumeError::Owning(owning)) => Answer::Own(*owning),
                Err(error) => Answer::Failed(error.to_string()),
            },
            Self::Map { source, namespace, target, config, .. } => match map(source, namespace, target, config) {
                Ok(()) => Answer::Done,
                Err(error) => Answer::Failed(error.to_string()),
            },
        }
    }
}

fn map(source: &Path, namespace: &Path, target: &Path, config: &Path) -> io::Result<()> {
    let user = File::open(namespace).map_err(named(namespace))?;
    user_ns::show(source, &user, target)?;
    keep(target, &user_ns::locked(target), config).map_err(named(config))
}

/// Adds options that a mount of the configuration must keep.
fn keep(source: &Path, locked: &[&str], config: &Path) -> io::Result<()> {
    if locked.is_empty() {
        return Ok(());
    }
    // As the tree that it is in JSON: oci-spec's types read themselves with more than half a megabyte of code, an
    // engine for regular expressions among it.
    let mut spec: Value = from_json(&fs::read(config)?)?;
    let mounts = spec.at_mut(&["mounts"]).and_then(Value::as_array_mut);
    for mount in mounts.into_iter().flatten().filter(|mount| mount["source"].as_str().map(Path::new) == Some(source)) {
        let mut options = mount["options"].as_array().cloned().unwrap_or_default();
        options.extend(locked.iter().map(|option| Value::from(*option)));
        mount.set("options", options.into());
    }
    fs::write(config, spec.to_string())
}

#[cfg(test)]
mod tests {
    use ::oci_spec::runtime::{Mount, Spec};

    use super::*;

    #[test]
    fn locked_mount_flags_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config.json");
        let mount = |source: &str| {
            let mut mount = Mount::default();
            mount.set_source(Some(source.into()));
            mount.set_options(Some(vec!["rbind".to_owned()]));
            mount
        };
        let mut spec = Spec::default();
        spec.set_mounts(Some(vec![mount("/a"), mount("/b")]));
        spec.save(&config).unwrap();
        keep(Path::new("/b"), &["nosuid", "nodev"], &config).unwrap();
        let options = |n: usize| Spec::load(&config).unwrap().mounts().as_ref().unwrap()[n].options().clone().unwrap();
        assert_eq!(
            (options(0), options(1)),
            (vec!["rbind".into()], vec!["rbind".into(), "nosuid".into(), "nodev".into()])
        );
    }

    #[test]
    fn looks_travel_to_the_helper_and_back() {
        let host =
            volume::look::Look::Host { volume: "nas".into(), path: "/mnt/nas".into(), type_: "Directory".into() };
        let look = Look::Volume(host);
        let text = serde_json::to_string(std::slice::from_ref(&look)).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Look>>(&text).unwrap(), std::slice::from_ref(&look));
        assert_eq!(look.failed("why"), "MountVolume.SetUp failed for volume \"nas\" : why");
        assert!(matches!(look.run(), Answer::Failed(why) if why.contains("/mnt/nas is not a directory")));
        let dir = tempfile::tempdir().unwrap();
        let touch = volume::look::Look::Touch { volume: "v".into(), path: dir.path().join("nothing") };
        assert_eq!(Look::Volume(touch).run(), Answer::Done, "the OCI runtime says more");
    }
}
