//! Devices and their models as nodes see them: without the status, and without fields that do not affect a device.
//! Pure; knows no node.

use std::sync::Arc;

use kube::api::DynamicObject;
use sampan_json::SetField;
use serde_json::{Map, Value, json};

use crate::bridge::name::name_of;
use crate::bridge::slim::made_object;
use crate::bridge::told::kinds::{DEVICES_API, Kind};
use crate::bridge::world::Told;

/// The only label that is sent to a device's driver.
const DESCRIPTION: &str = "description";
/// Prefix of annotations that are sent to nodes.
const OURS: &str = "sampan.dev/";

/// The parts of a Device that the bridge uses.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    pub uid: Box<str>,
    /// Node of the Device; empty if it is not bound, or is being deleted.
    pub node: Box<str>,
    /// Empty if it does not name one.
    pub(super) model: Box<str>,
    /// Names of the properties, in their order.
    pub(super) properties: Box<[Box<str>]>,
    pub(super) view: Arc<Told>,
}

impl Device {
    /// Parses an object of the API; `None` if it is not a Device.
    pub fn read(object: Value) -> Option<Self> {
        Self::of(&serde_json::from_value(object).ok()?)
    }

    /// `None` for an object without a name or uid.
    pub(super) fn of(object: &DynamicObject) -> Option<Self> {
        let spec = &object.data["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().into();
        let going = object.metadata.deletion_timestamp.is_some();
        Some(Self {
            uid: object.metadata.uid.as_deref()?.into(),
            node: if going { Box::default() } else { text(&spec["nodeName"]) },
            model: text(&spec["deviceModelRef"]["name"]),
            properties: properties(spec),
            view: told(Kind::Device, object)?,
        })
    }
}

/// The parts of a DeviceModel that the bridge uses.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Names of the properties.
    pub(super) properties: Box<[Box<str>]>,
    pub(super) view: Arc<Told>,
}

impl Model {
    /// Parses an object of the API; `None` if it is not a model.
    pub fn read(object: Value) -> Option<Self> {
        Self::of(&serde_json::from_value(object).ok()?)
    }

    /// `None` for an object without a name or uid.
    pub(super) fn of(object: &DynamicObject) -> Option<Self> {
        Some(Self { properties: properties(&object.data["spec"]), view: told(Kind::DeviceModel, object)? })
    }
}

/// Names of the properties, in order.
fn properties(spec: &Value) -> Box<[Box<str>]> {
    let properties = spec["properties"].as_array().into_iter().flatten();
    properties.filter_map(|property| property["name"].as_str()).map(Into::into).collect()
}

fn told(kind: Kind, object: &DynamicObject) -> Option<Arc<Told>> {
    let (namespace, name) = name_of(&object.metadata);
    let uid = object.metadata.uid.clone().filter(|uid| !uid.is_empty() && !name.is_empty())?;
    let mut metadata = json!({"namespace": namespace, "name": name, "uid": uid});
    let labels = object.metadata.labels.iter().flatten();
    if let Some((label, text)) = labels.into_iter().find(|(label, _)| *label == DESCRIPTION) {
        metadata.set("labels", json!({ label: text }));
    }
    let annotations = object.metadata.annotations.iter().flatten().filter(|(name, _)| name.starts_with(OURS));
    let annotations: Map<String, Value> = annotations.map(|(name, text)| (name.clone(), text.clone().into())).collect();
    if !annotations.is_empty() {
        metadata.set("annotations", annotations.into());
    }
    let body =
        json!({"apiVersion": DEVICES_API, "kind": kind.name(), "metadata": metadata, "spec": object.data["spec"]});
    Some(Told::new(made_object(kind.key(namespace, name), uid, body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(metadata: Value, spec: Value, status: Value) -> DynamicObject {
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn status_labels_and_versions_change_no_digest() {
        let spec =
            json!({"nodeName": "n", "deviceModelRef": {"name": "m"}, "properties": [{"name": "b"}, {"name": "a"}]});
        let plain = json!({"namespace": "ns", "name": "d", "uid": "u"});
        let decorated = json!({"namespace": "ns", "name": "d", "uid": "u", "labels": {"a": "b"}, "generation": 7,
            "annotations": {"example.com/x": "y"}, "resourceVersion": "9", "managedFields": [], "finalizers": ["f"],
            "creationTimestamp": "2026-01-01T00:00:00Z"});
        let one = Device::of(&object(plain, spec.clone(), json!({}))).unwrap();
        let other = Device::of(&object(decorated, spec.clone(), json!({"reportCycle": 3}))).unwrap();
        assert_eq!(one, other);
        assert_eq!((&*one.node, &*one.model, &*one.uid), ("n", "m", "u"));
        assert_eq!(one.properties.iter().map(|name| &**name).collect::<Vec<_>>(), ["b", "a"], "in their order");
        let said = json!({"namespace": "ns", "name": "d", "uid": "u", "labels": {"description": "x", "a": "b"},
            "annotations": {"sampan.dev/check": "off", "example.com/x": "y"}});
        let said = Device::of(&object(said, spec.clone(), Value::Null)).unwrap();
        let body: Value = serde_json::from_str(said.view.text().text()).unwrap();
        let metadata = json!({"namespace": "ns", "name": "d", "uid": "u", "labels": {"description": "x"},
            "annotations": {"sampan.dev/check": "off"}});
        assert_eq!(body, json!({"apiVersion": DEVICES_API, "kind": "Device", "metadata": metadata, "spec": spec}));
    }

    #[test]
    fn odd_devices_are_bound_nowhere_and_name_nothing() {
        let named = json!({"namespace": "ns", "name": "d", "uid": "u"});
        for spec in [Value::Null, json!([]), json!({"nodeName": 1, "deviceModelRef": "m", "properties": {"name": "x"}})]
        {
            let device = Device::of(&object(named.clone(), spec, Value::Null)).unwrap();
            assert_eq!((&*device.node, &*device.model, device.properties.len()), ("", "", 0));
        }
        assert!(Device::of(&object(json!({"name": "d"}), json!({}), Value::Null)).is_none(), "no uid");
        let going = json!({"namespace": "ns", "name": "d", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let going = Device::of(&object(going, json!({"nodeName": "n"}), Value::Null)).unwrap();
        assert_eq!(&*going.node, "");
    }
}
