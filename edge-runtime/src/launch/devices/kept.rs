//! Devices of plugins that containers have, and the files that keep them: `plugin-devices.json` in the folder of each pod.
//!
//! A file is on the disk before a container starts with what it names. So no crash lets a device be allocated twice: a
//! container that runs is in a file, and one that is in no file has not started. The kubelet keeps the same in
//! `kubelet_internal_checkpoint` (K8s pkg/kubelet/cm/devicemanager).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use sampan_json::SetField;
use sampan_plugins_control::Edits;
use serde::Deserialize;
use serde_json::Value;

use crate::paths::Paths;
use crate::pod::record::ContainerKind;
use crate::pod::spec::{uid, with_kinds};
use crate::sys::files::{named, replace};
use crate::sys::from_json::from_json;
use crate::sys::vec_map::VecMap;

/// Maximum size of a file that is read, in bytes.
const FILE_LIMIT: u64 = 16 << 20;

/// What a container has of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// Empty: the container has started without the resource, because no plugin had it.
    pub ids: Vec<String>,
    /// The plugin wants to know of every start.
    pub pre_start: bool,
    pub edits: Edits,
}

/// Allocations of a container, by resource.
pub type OfContainer = VecMap<String, Allocation>;

/// Allocations of a pod, by container.
pub type OfPod = VecMap<String, OfContainer>;

/// All allocations, by the pods' uids.
#[derive(Debug, Default)]
pub struct Kept {
    pods: VecMap<String, OfPod>,
    /// Pods whose files are older.
    unsaved: Vec<String>,
}

impl Kept {
    /// Reads the files of all pods. One that cannot be read counts as none.
    pub fn load(paths: &Paths) -> Self {
        let folders = fs::read_dir(paths.pods()).into_iter().flatten().flatten();
        let uids = folders.filter_map(|folder| folder.file_name().into_string().ok());
        let files = uids.filter_map(|uid| {
            let text = bytes(&paths.plugin_devices(&uid)).ok()?;
            Some((uid, text))
        });
        let (kept, wrong) = Self::rebuild(files);
        for uid in wrong {
            log::error!("pod {uid}: its devices of plugins are forgotten, because their file is damaged");
        }
        kept
    }

    /// The allocations in these files, by uid, and the pods whose file is not whole: it counts as none.
    fn rebuild(files: impl Iterator<Item = (String, Vec<u8>)>) -> (Self, Vec<String>) {
        let (mut kept, mut wrong) = (Self::default(), Vec::new());
        for (uid, text) in files {
            match parse(&text) {
                Some(of_pod) => drop(kept.pods.insert(uid, of_pod)),
                None => wrong.push(uid),
            }
        }
        (kept, wrong)
    }

    pub fn of(&self, uid: &str, container: &str) -> Option<&OfContainer> {
        self.pods.get(uid)?.get(container)
    }

    /// Containers of the pod that have devices, and these.
    pub fn of_pod(&self, uid: &str) -> impl Iterator<Item = (&String, &OfContainer)> {
        self.pods.get(uid).into_iter().flat_map(|of_pod| of_pod.iter())
    }

    pub fn get(&self, uid: &str, container: &str, resource: &str) -> Option<&Allocation> {
        self.of(uid, container)?.get(resource)
    }

    /// Whether a container of the pod has devices of a plugin.
    pub fn has(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// Devices of this resource that containers of these pods have.
    pub fn held<'a>(&'a self, resource: &str, pods: impl Fn(&str) -> bool) -> BTreeSet<&'a str> {
        let mut held = BTreeSet::new();
        for (_, of_pod) in self.pods.iter().filter(|(uid, _)| pods(uid)) {
            let allocations = of_pod.values().filter_map(|of_container| of_container.get(resource));
            held.extend(allocations.flat_map(|allocation| allocation.ids.iter().map(String::as_str)));
        }
        held
    }

    /// Devices that init containers pass on to this container: they have ended when it starts. Those of sidecars, and what
    /// another container has taken over, are in use (K8s manager.go, `devicesToReuse`).
    pub fn lent(&self, pod: &Pod, container: &str, resource: &str) -> Vec<String> {
        let (mut passed, mut used) = (Vec::new(), BTreeSet::new());
        for (other, kind) in pod.spec.iter().flat_map(with_kinds).filter(|(other, _)| other.name != container) {
            let ids = self.get(uid(pod), &other.name, resource).map(|one| one.ids.as_slice()).unwrap_or_default();
            match kind {
                ContainerKind::Init => passed.extend(ids.iter().cloned()),
                _ => used.extend(ids),
            }
        }
        let mut seen = BTreeSet::new();
        passed.retain(|id| !used.contains(id) && seen.insert(id.clone()));
        passed
    }

    /// A container that had none has these devices from now on, until its pod ends: a file never gives one up while another
    /// pod may take it. [`Kept::save`] must succeed before the container starts.
    pub fn put(&mut self, uid: &str, container: &str, resource: &str, allocation: Allocation) {
        let of_pod = self.pods.get_or_default(uid.to_owned());
        of_pod.get_or_default(container.to_owned()).insert(resource.to_owned(), allocation);
        if !self.unsaved.iter().any(|other| other == uid) {
            self.unsaved.push(uid.to_owned());
        }
    }

    /// Writes all files that have changed; they are on the disk when this returns.
    ///
    /// # Errors
    /// A file cannot be written. Nothing is forgotten: another call tries again.
    pub fn save(&mut self, paths: &Paths) -> io::Result<()> {
        while let Some(uid) = self.unsaved.first() {
            if let Some(of_pod) = self.pods.get(uid) {
                let path = paths.plugin_devices(uid);
                replace(&path, &text(of_pod)?, true).map_err(named(&path))?;
            }
            self.unsaved.remove(0);
        }
        Ok(())
    }

    /// The pod has ended. Returns whether it had any.
    pub fn free(&mut self, uid: &str, paths: &Paths) -> bool {
        self.unsaved.retain(|other| other != uid);
        let had = self.pods.remove(uid).is_some();
        if had && let Err(error) = crate::sys::files::unless_missing(fs::remove_file(paths.plugin_devices(uid))) {
            log::warn!("pod {uid}: {error}");
        }
        had
    }

    /// Forgets pods that there are not.
    pub fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.pods.retain(|uid, _| exists(uid));
    }
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(FILE_LIMIT).read_to_end(&mut text)?;
    Ok(text)
}

/// `{CONTAINER: {RESOURCE: {"ids", "preStart", "env", "mounts", "devices", "annotations"}}}`
fn text(of_pod: &OfPod) -> serde_json::Result<Vec<u8>> {
    let mut all = Value::Null;
    for (container, resources) in of_pod.iter() {
        for (resource, allocation) in resources.iter() {
            let mut one = serde_json::to_value(&allocation.edits)?;
            one.set("ids", allocation.ids.clone().into());
            one.set("preStart", allocation.pre_start.into());
            all.set_at(&[container.as_str(), resource.as_str()], one);
        }
    }
    Ok(all.to_string().into_bytes())
}

/// `None` for a file that is not whole.
fn parse(text: &[u8]) -> Option<OfPod> {
    let mut all: Value = from_json(text).ok()?;
    let mut of_pod = OfPod::new();
    for (container, resources) in all.as_object_mut()? {
        for (resource, one) in resources.as_object_mut()? {
            of_pod.get_or_default(container.clone()).insert(resource.clone(), allocation(one.take())?);
        }
    }
    Some(of_pod)
}

fn allocation(one: Value) -> Option<Allocation> {
    let text = |id: &Value| id.as_str().map(str::to_owned);
    let ids = one["ids"].as_array()?.iter().map(text).collect::<Option<Vec<_>>>()?;
    let pre_start = one["preStart"].as_bool()?;
    Some(Allocation { ids, pre_start, edits: Edits::deserialize(one).ok()? })
}

#[cfg(test)]
mod tests;
