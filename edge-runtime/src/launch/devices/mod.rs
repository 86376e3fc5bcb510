//! Devices of this board as named resources: which exist, and which container has which.
//!
//! The configuration replaces the kubelet's device plugins: a resource name, and its nodes below `/dev`. Nodes are
//! looked up at every start, so a device that was plugged in again is found under its new number. An allocation is
//! stored in the pod's folder, so that a restarted container gets the same device.
//!
//! Devices of device plugins are apart from these:
//!
//! | file | owns |
//! |---|---|
//! | `plugins` | resources of plugins, and in `next` what a container or pod gets of them |
//! | `kept` | which devices containers have, on the disk |
//! | `shortage` | why there are none, in the kubelet's words |

mod glob;
pub mod kept;
pub mod plugins;
pub mod shortage;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::config::devices::DeviceClass;
use crate::paths::Paths;
use crate::pod::extended_resources;
use crate::pod::record::ContainerKind;
use crate::pod::spec::{uid, with_kinds};
use crate::sys::files::unless_missing;
use crate::sys::from_json::from_json;
use crate::sys::gather::Gather;
use crate::sys::vec_map::VecMap;

/// Resource name to the device nodes of one container.
type Held = BTreeMap<String, Vec<PathBuf>>;

/// A device that a container gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Path on the node and in the container: a link keeps its name, whatever its target.
    pub path: PathBuf,
    pub access: String,
}

/// All classes and who holds what.
#[derive(Debug, Default)]
pub struct Devices {
    classes: BTreeMap<String, DeviceClass>,
    /// Held devices by pod uid and container name.
    held: VecMap<String, BTreeMap<String, Held>>,
}

impl Devices {
    /// Loads the assignments from the pods' folders.
    pub fn load(classes: BTreeMap<String, DeviceClass>, paths: &Paths) -> Self {
        let mut held = VecMap::new();
        let folders = std::fs::read_dir(paths.pods()).into_iter().flatten().flatten();
        for folder in folders.filter(|_| !classes.is_empty()) {
            let Ok(uid) = folder.file_name().into_string() else { continue };
            let Ok(text) = std::fs::read(file(paths, &uid)) else { continue };
            match from_json(&text) {
                Ok(of_pod) => drop(held.insert(uid, of_pod)),
                Err(error) => log::warn!("pod {uid}: its devices are forgotten: {error}"),
            }
        }
        Self { classes, held }
    }

    /// Resource names with how many containers can have one each, now.
    pub fn capacity(&self) -> BTreeMap<String, u64> {
        let count = |class: &DeviceClass| {
            u64::try_from(present(class).len()).unwrap_or(0).saturating_mul(u64::from(*class.share))
        };
        self.classes.iter().map(|(name, class)| (name.clone(), count(class))).into_map()
    }

    /// The devices that `container` asks for: those it had before, as far as they are still there, else free ones.
    ///
    /// # Errors
    /// Too few are there or free; what the waiting container shows.
    pub fn allocate(&mut self, pod: &Pod, container: &Container, paths: &Paths) -> io::Result<Vec<Grant>> {
        let uid = uid(pod);
        let mut mine = self.held.get(uid).and_then(|of| of.get(&container.name)).cloned().unwrap_or_default();
        let (before, mut grants) = (mine.clone(), Vec::new());
        for (resource, wanted) in extended_resources::of(container) {
            let Some(class) = self.classes.get(&resource) else { continue };
            let there = present(class);
            let had = mine.entry(resource.clone()).or_default();
            had.retain(|path| there.contains(path));
            had.truncate(wanted);
            for path in &there {
                if had.len() < wanted
                    && !had.contains(path)
                    && self.users(uid, pod, &container.name, &resource, path) < *class.share
                {
                    had.push(path.clone());
                }
            }
            if had.len() < wanted {
                let free = had.len();
                let why = format!("{resource}: {wanted} wanted, {free} of {} present are free", there.len());
                return Err(io::Error::other(why));
            }
            grants.extend(had.iter().map(|path| Grant { path: path.clone(), access: class.access.clone() }));
        }
        if mine != before {
            let of_pod = self.held.get_or_default(uid.to_owned());
            of_pod.insert(container.name.clone(), mine);
            // Half a file counts as none: then the containers may get other devices at their next start.
            std::fs::write(file(paths, uid), serde_json::to_vec(of_pod)?)?;
        }
        Ok(grants)
    }

    /// Number of containers that hold `path` now. Init containers of the same pod do not count: they end before the
    /// others start, and pass their devices on.
    fn users(&self, uid: &str, pod: &Pod, container: &str, resource: &str, path: &Path) -> u32 {
        let all = pod.spec.iter().flat_map(with_kinds);
        let passing: Vec<&str> =
            all.filter(|(_, kind)| *kind == ContainerKind::Init).map(|(one, _)| one.name.as_str()).collect();
        let counts = |holder: &str, name: &str| holder != uid || (name != container && !passing.contains(&name));
        let holders = self.held.iter().flat_map(|(holder, of)| of.iter().map(move |(name, held)| (holder, name, held)));
        let holders = holders.filter(|(holder, name, held)| {
            counts(holder, name) && held.get(resource).is_some_and(|all| all.iter().any(|one| one == path))
        });
        u32::try_from(holders.count()).unwrap_or(u32::MAX)
    }

    /// The pod has ended.
    pub fn free(&mut self, uid: &str, paths: &Paths) {
        if self.held.remove(uid).is_some()
            && let Err(error) = unless_missing(std::fs::remove_file(file(paths, uid)))
        {
            log::warn!("pod {uid}: {error}");
        }
    }
}

fn file(paths: &Paths, uid: &str) -> PathBuf {
    paths.pod(uid).join("devices.json")
}

/// Device nodes that match now, in the patterns' order.
fn present(class: &DeviceClass) -> Vec<PathBuf> {
    use std::os::unix::fs::FileTypeExt;
    let mut all = Vec::new();
    for pattern in &class.patterns {
        let found = glob::matching(Path::new("/"), pattern).into_iter();
        all.extend(found.filter(|path| {
            std::fs::metadata(path)
                .is_ok_and(|meta| meta.file_type().is_char_device() || meta.file_type().is_block_device())
        }));
    }
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|path| seen.insert(path.clone()));
    all
}
