//! Which node has which Devices, and which models these name. Pure: events of two watches in, groups out. The order in
//! which Devices and models arrive does not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::api::DynamicObject;

use super::view::{Device, Model};
use crate::bridge::followed::{self, News};
use crate::bridge::name::Name;
use crate::bridge::told::kinds::{DEVICES_API, Kind};
use crate::bridge::world::Group;

/// All known Devices and models.
#[derive(Default)]
pub struct Index {
    devices: BTreeMap<Name, Device>,
    models: BTreeMap<Name, Model>,
    of_node: BTreeMap<Box<str>, BTreeSet<Name>>,
    /// Devices that name a model, whether it exists or not.
    of_model: BTreeMap<Name, BTreeSet<Name>>,
    /// Nodes whose groups changed since the last call of `take_changed`.
    changed: BTreeSet<Box<str>>,
}

impl Index {
    pub(super) fn device(&self, name: &Name) -> Option<&Device> {
        self.devices.get(name)
    }

    /// Devices that are bound to a node.
    pub(super) fn bound(&self) -> impl Iterator<Item = (&Name, &Device)> {
        self.of_node.values().flatten().filter_map(|name| self.devices.get_key_value(name))
    }

    /// The model of this Device, if it exists.
    pub(super) fn model(&self, name: &Name, device: &Device) -> Option<&Model> {
        self.models.get(&model_of(name, device))
    }

    /// Sets the state of a Device; `None`: it was deleted.
    pub fn set_device(&mut self, name: Name, device: Option<Device>) {
        if self.devices.get(&name) == device.as_ref() {
            return;
        }
        if let Some(old) = self.devices.remove(&name) {
            forget(&mut self.of_node, &old.node, &name);
            forget(&mut self.of_model, &model_of(&name, &old), &name);
            self.changed.insert(old.node);
        }
        if let Some(device) = device {
            self.changed.insert(device.node.clone());
            if !device.node.is_empty() {
                self.of_node.entry(device.node.clone()).or_default().insert(name.clone());
            }
            if !device.model.is_empty() {
                self.of_model.entry(model_of(&name, &device)).or_default().insert(name.clone());
            }
            self.devices.insert(name, device);
        }
    }

    /// Sets the state of a model; `None`: it was deleted.
    pub fn set_model(&mut self, name: Name, model: Option<Model>) {
        if self.models.get(&name) == model.as_ref() {
            return;
        }
        let users = self.of_model.get(&name).into_iter().flatten();
        self.changed.extend(users.filter_map(|user| self.devices.get(user)).map(|device| device.node.clone()));
        match model {
            Some(model) => drop(self.models.insert(name, model)),
            None => drop(self.models.remove(&name)),
        }
    }

    /// Replaces all Devices.
    pub(super) fn list_devices(&mut self, all: BTreeMap<Name, Device>) {
        for (name, device) in listed(self.devices.keys(), all) {
            self.set_device(name, device);
        }
    }

    /// Replaces all models.
    pub(super) fn list_models(&mut self, all: BTreeMap<Name, Model>) {
        for (name, model) in listed(self.models.keys(), all) {
            self.set_model(name, model);
        }
    }

    /// The group that a node should hold.
    pub fn group(&self, node: &str) -> Group {
        let mut group = Group::new();
        let key = |kind: Kind, (namespace, name): &Name| kind.key(namespace, name);
        for name in self.of_node.get(node).into_iter().flatten() {
            let Some(device) = self.devices.get(name) else { continue };
            group.insert(key(Kind::Device, name), Arc::clone(&device.view));
            let model = model_of(name, device);
            group
                .extend(self.models.get(&model).map(|found| (key(Kind::DeviceModel, &model), Arc::clone(&found.view))));
        }
        group
    }
}

/// The index as [`followed`] uses it.
impl followed::Index for Index {
    type One = Device;
    type Other = Model;

    const API: &str = DEVICES_API;
    const ONE: (&str, &str) = (Kind::Device.name(), Kind::Device.facts().plural);
    const OTHER: (&str, &str) = (Kind::DeviceModel.name(), Kind::DeviceModel.facts().plural);
    const NAME: &str = "Devices";

    fn one(object: &DynamicObject) -> Option<Device> {
        Device::of(object)
    }

    fn other(object: &DynamicObject) -> Option<Model> {
        Model::of(object)
    }

    fn take_one(&mut self, news: News<Device>) {
        match news {
            News::One(name, one) => self.set_device(name, one),
            News::All(all) => self.list_devices(all),
        }
    }

    fn take_other(&mut self, news: News<Model>) {
        match news {
            News::One(name, one) => self.set_model(name, one),
            News::All(all) => self.list_models(all),
        }
    }

    fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    fn take_changed(&mut self) -> BTreeSet<Box<str>> {
        std::mem::take(&mut self.changed)
    }

    fn group(&self, node: &str) -> Group {
        self.group(node)
    }
}

/// All names that are known or in the list, each with its object from the list.
fn listed<'a, T>(known: impl Iterator<Item = &'a Name>, all: BTreeMap<Name, T>) -> BTreeMap<Name, Option<T>> {
    let mut now: BTreeMap<Name, Option<T>> = known.map(|name| (name.clone(), None)).collect();
    now.extend(all.into_iter().map(|(name, one)| (name, Some(one))));
    now
}

/// The model that a Device names is in the Device's namespace.
fn model_of(name: &Name, device: &Device) -> Name {
    (name.0.clone(), device.model.to_string())
}

fn forget<K: Ord>(users: &mut BTreeMap<K, BTreeSet<Name>>, of: &K, name: &Name) {
    if let Some(names) = users.get_mut(of) {
        names.remove(name);
        if names.is_empty() {
            users.remove(of);
        }
    }
}

#[cfg(test)]
mod tests;
