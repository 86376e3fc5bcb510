//! Devices of plugins that containers have, and the files that keep them: `plugin-devices.json` in the folder of each pod.
//!
//! A file is on the disk before a container starts with what it names. So no crash lets a device be allocated twice: a
//! container that runs is in a file, and one that is in no file has not started. The kubelet keeps the same in
//! `kubelet_internal_checkpoint` (K8s pkg/kubelet/cm/devicemanager).

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use sampan_json::SetField;
use sampan_plugins_control::are_edits;
use serde_json::Value;

use crate::paths::Paths;
use crate::pod::record::ContainerKind;
use crate::pod::spec::{uid, with_kinds};
use crate::sys::files::{named, replace};
use crate::sys::from_json::from_json;

/// Maximum size of a file that is read, in bytes.
const FILE_LIMIT: u64 = 16 << 20;

/// What a container has of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// Pod, by its uid.
    pub uid: String,
    pub container: String,
    pub resource: String,
    /// Empty: the container has started without the resource, because no plugin had it.
    pub ids: Vec<String>,
    /// The plugin wants to know of every start.
    pub pre_start: bool,
    /// [`sampan_plugins_control::Edits`] as JSON, checked; null without devices.
    pub edits: Value,
}

/// All allocations.
#[derive(Debug, Default)]
pub struct Kept {
    /// Sorted by pod, container and resource.
    all: Vec<Allocation>,
    /// Pods whose files are older.
    unsaved: Vec<String>,
    /// What containers had before. It is held until their files do not name it any more.
    given_up: Vec<Allocation>,
    /// Pods whose file was damaged: what their containers have is not known.
    damaged: Vec<String>,
}

impl Kept {
    /// Reads the files of all pods. One that cannot be read counts as none.
    pub fn load(paths: &Paths) -> Self {
        let mut kept = Self::default();
        for folder in fs::read_dir(paths.pods()).into_iter().flatten().flatten() {
            let Ok(uid) = folder.file_name().into_string() else { continue };
            let Ok(text) = bytes(&paths.plugin_devices(&uid)) else { continue };
            if !kept.take(&uid, &text) {
                log::error!("pod {uid}: its devices of plugins are forgotten, because their file is damaged");
            }
        }
        kept
    }

    /// Adds the allocations of a pod's file. A damaged file counts as none; returns false.
    fn take(&mut self, uid: &str, text: &[u8]) -> bool {
        let Some(all) = parse(uid, text) else {
            self.damaged.push(uid.to_owned());
            return false;
        };
        for one in all {
            self.insert(one);
        }
        true
    }

    fn insert(&mut self, allocation: Allocation) {
        match self.all.binary_search_by(|one| order(one, &allocation)) {
            Ok(at) => self.given_up.push(std::mem::replace(&mut self.all[at], allocation)),
            Err(at) => self.all.insert(at, allocation),
        }
    }

    /// What a container of the pod has.
    pub fn of(&self, uid: &str, container: &str) -> &[Allocation] {
        self.those(&|one| one.uid == uid && one.container == container)
    }

    /// What all containers of the pod have.
    pub fn of_pod(&self, uid: &str) -> &[Allocation] {
        self.those(&|one| one.uid == uid)
    }

    /// The part for which `are` holds; it is in one piece.
    fn those(&self, are: &dyn Fn(&Allocation) -> bool) -> &[Allocation] {
        let from = self.all.iter().position(are).unwrap_or(self.all.len());
        let rest = self.all.get(from..).unwrap_or_default();
        let count = rest.iter().take_while(|one| are(one)).count();
        rest.get(..count).unwrap_or_default()
    }

    pub fn get(&self, uid: &str, container: &str, resource: &str) -> Option<&Allocation> {
        self.of(uid, container).iter().find(|one| one.resource == resource)
    }

    /// Whether a container of the pod has devices of a plugin.
    pub fn has(&self, uid: &str) -> bool {
        !self.of_pod(uid).is_empty()
    }

    /// Whether the pod's file was damaged.
    pub fn is_damaged(&self, uid: &str) -> bool {
        self.damaged.iter().any(|other| other == uid)
    }

    /// Devices of this resource that containers of these pods have.
    pub fn held(&self, resource: &str, pods: &dyn Fn(&str) -> bool) -> BTreeSet<&str> {
        let mut held = BTreeSet::new();
        for one in self.all.iter().chain(&self.given_up) {
            if one.resource == resource && pods(&one.uid) {
                held.extend(one.ids.iter().map(String::as_str));
            }
        }
        held
    }

    /// Devices that init containers pass on to this container: they have ended when it starts. Those of sidecars, and what
    /// another container has taken over, are in use (K8s manager.go, `devicesToReuse`).
    pub fn lent(&self, pod: &Pod, container: &str, resource: &str) -> Vec<String> {
        let (mut passed, mut used) = (Vec::<String>::new(), Vec::new());
        for (other, kind) in pod.spec.iter().flat_map(with_kinds) {
            if other.name == container {
                continue;
            }
            let Some(has) = self.get(uid(pod), &other.name, resource) else { continue };
            let ids = if kind == ContainerKind::Init { &mut passed } else { &mut used };
            for id in &has.ids {
                if !ids.contains(id) {
                    ids.push(id.clone());
                }
            }
        }
        passed.retain(|id| !used.contains(id));
        passed
    }

    /// A container has these devices from now on, until its pod ends. [`Kept::save`] must succeed before it starts. Those
    /// that it had before are free after that: no crash finds them in two files.
    pub fn put(&mut self, allocation: Allocation) {
        if !self.unsaved.contains(&allocation.uid) {
            self.unsaved.push(allocation.uid.clone());
        }
        self.insert(allocation);
    }

    /// Writes all files that have changed; they are on the disk when this returns.
    ///
    /// # Errors
    /// A file cannot be written. Nothing is forgotten: another call tries again.
    pub fn save(&mut self, paths: &Paths) -> io::Result<()> {
        while let Some(uid) = self.unsaved.first() {
            let own = self.of_pod(uid);
            if !own.is_empty() {
                let path = paths.plugin_devices(uid);
                replace(&path, &text(own), true).map_err(named(&path))?;
            }
            let saved = self.unsaved.remove(0);
            self.given_up.retain(|one| one.uid != saved);
        }
        Ok(())
    }

    /// The pod has ended. Returns whether it had any.
    pub fn free(&mut self, uid: &str, paths: &Paths) -> bool {
        let had = self.has(uid);
        if had && let Err(error) = crate::sys::files::unless_missing(fs::remove_file(paths.plugin_devices(uid))) {
            log::warn!("pod {uid}: {error}");
        }
        self.retain(&|other| other != uid);
        had
    }

    /// Forgets pods that there are not.
    pub fn retain(&mut self, exists: &dyn Fn(&str) -> bool) {
        for list in [&mut self.all, &mut self.given_up] {
            list.retain(|one| exists(&one.uid));
        }
        self.unsaved.retain(|uid| exists(uid));
        self.damaged.retain(|uid| exists(uid));
    }
}

fn order(one: &Allocation, other: &Allocation) -> Ordering {
    let by_container = one.uid.cmp(&other.uid).then_with(|| one.container.cmp(&other.container));
    by_container.then_with(|| one.resource.cmp(&other.resource))
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(FILE_LIMIT).read_to_end(&mut text)?;
    Ok(text)
}

/// `{CONTAINER: {RESOURCE: {"ids", "preStart", "env", "mounts", "devices", "annotations"}}}`
fn text(of_pod: &[Allocation]) -> Vec<u8> {
    let mut all = Value::Null;
    for allocation in of_pod {
        let mut one = allocation.edits.clone();
        one.set("ids", allocation.ids.clone().into());
        one.set("preStart", allocation.pre_start.into());
        all.set_at(&[allocation.container.as_str(), allocation.resource.as_str()], one);
    }
    all.to_string().into_bytes()
}

/// `None` for a file that is not whole.
fn parse(uid: &str, text: &[u8]) -> Option<Vec<Allocation>> {
    let mut file: Value = from_json(text).ok()?;
    let mut all = Vec::new();
    for (container, resources) in file.as_object_mut()? {
        for (resource, one) in resources.as_object_mut()? {
            let (uid, container, resource) = (uid.to_owned(), container.clone(), resource.clone());
            all.push(Allocation { uid, container, resource, ..allocation(one.take())? });
        }
    }
    Some(all)
}

fn allocation(mut edits: Value) -> Option<Allocation> {
    let fields = edits.as_object_mut()?;
    let (listed, pre_start) = (fields.remove("ids")?, fields.remove("preStart")?.as_bool()?);
    let mut ids = Vec::new();
    for id in listed.as_array()? {
        ids.push(id.as_str()?.to_owned());
    }
    if ids.is_empty() {
        edits = Value::Null;
    } else if !are_edits(&edits) {
        return None;
    }
    Some(Allocation { ids, pre_start, edits, ..Allocation::default() })
}

#[cfg(test)]
mod tests;
