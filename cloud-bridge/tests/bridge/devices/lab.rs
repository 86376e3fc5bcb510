//! A cluster with the definitions of devices, and operations for tests.

use edge_protocol::message::Report;
use edge_protocol::message::{DeviceReport, DeviceState, TwinReport, TwinValue};
use http::Request;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::fixture::{Cluster, TestBridge, eventually, node_object};
use crate::support::{Edge, Identity, Store};

pub(super) const MODEL: &str = "DeviceModel";
pub(super) const DEFINITIONS: &str = include_str!("../../../../deploy/bridge/devices/crds.yaml");

/// A cluster with devices.
pub(super) struct Lab {
    pub(super) cluster: Cluster,
}

/// Whether the cluster is shared with others.
pub(super) fn is_shared() -> bool {
    std::env::var_os("TEST_KUBECONFIG").is_some()
}

/// The definitions without the subresource.
pub(super) fn plain() -> String {
    let plain = DEFINITIONS.replace("      subresources:\n        status: {}\n", "");
    assert_ne!(plain, DEFINITIONS);
    plain
}

impl Lab {
    pub(super) async fn open() -> Self {
        let lab = Self { cluster: Cluster::open().await };
        lab.define(DEFINITIONS).await;
        lab
    }

    /// With definitions whose statuses are not a subresource; only in a separate cluster.
    pub(super) async fn open_plain() -> Self {
        let lab = Self { cluster: Cluster::open().await };
        lab.define(&plain()).await;
        lab
    }

    /// A cluster without devices.
    pub(super) async fn bare() -> Self {
        Self { cluster: Cluster::open().await }
    }

    pub(super) async fn define(&self, definitions: &str) {
        for text in definitions.split("\n---\n") {
            self.apply("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", text).await;
        }
        for plural in ["devices", "devicemodels", "devicestatuses"] {
            let list = || async {
                let path = format!("/apis/devices.kubeedge.io/v1beta1/namespaces/default/{plural}");
                self.cluster.client.request::<Value>(Request::get(path).body(Vec::new()).unwrap()).await.is_ok()
            };
            eventually("the definitions", list).await;
        }
    }

    /// Deletes the definitions, and waits until none is served.
    pub(super) async fn undefine(&self) {
        for plural in ["devices", "devicemodels", "devicestatuses"] {
            let list = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let request = Request::delete(format!("{list}/{plural}.devices.kubeedge.io")).body(Vec::new()).unwrap();
            let _: Value = self.cluster.client.request(request).await.unwrap();
            let gone = || async {
                let path = format!("/apis/devices.kubeedge.io/v1beta1/namespaces/default/{plural}");
                self.cluster.client.request::<Value>(Request::get(path).body(Vec::new()).unwrap()).await.is_err()
            };
            eventually("the end of the definitions", gone).await;
        }
    }

    /// Applies a manifest of one object to this list.
    pub(super) async fn apply(&self, list: &str, text: &str) {
        let name = text.lines().find_map(|line| line.strip_prefix("  name: ")).unwrap();
        let request = Request::patch(format!("{list}/{name}?fieldManager=test&force=true&fieldValidation=Strict"))
            .header("content-type", "application/apply-patch+yaml")
            .body(text.as_bytes().to_vec())
            .unwrap();
        let _: Value = self.cluster.client.request(request).await.unwrap();
    }

    /// Joins as a node with devices, connects, registers and waits for the first list.
    pub(super) async fn edge(&self, bridge: &TestBridge, node: &str) -> (Identity, Edge) {
        let identity = bridge.join(&self.cluster, node).await;
        let mut edge = Edge::connect_with_devices(bridge.address, &identity, Store::default()).await;
        edge.report_and_wait(Report::Node { node: node_object(node) }).await.unwrap();
        edge.until("the first list", |edge| edge.synced).await;
        (identity, edge)
    }

    fn api(&self, kind: &str, plural: &str) -> Api<DynamicObject> {
        let (group, version) = ("devices.kubeedge.io", "v1beta1");
        let resource = ApiResource {
            group: group.into(),
            version: version.into(),
            api_version: format!("{group}/{version}"),
            kind: kind.into(),
            plural: plural.into(),
        };
        Api::namespaced_with(self.cluster.client.clone(), "default", &resource)
    }

    pub(super) fn devices(&self) -> Api<DynamicObject> {
        self.api("Device", "devices")
    }

    pub(super) fn models(&self) -> Api<DynamicObject> {
        self.api(MODEL, "devicemodels")
    }

    pub(super) fn statuses(&self) -> Api<DynamicObject> {
        self.api("DeviceStatus", "devicestatuses")
    }

    pub(super) async fn model(&self, name: &str) {
        let spec = json!({"protocol": "lab", "properties": [
            {"name": "temp", "type": "FLOAT", "accessMode": "ReadOnly", "minimum": "-40", "maximum": "125"},
            {"name": "led", "type": "STRING", "accessMode": "ReadWrite"}]});
        let object = json!({"apiVersion": "devices.kubeedge.io/v1beta1", "kind": MODEL, "metadata": {"name": name},
            "spec": spec});
        self.models().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    /// Creates a Device with two properties; returns its uid.
    pub(super) async fn device(&self, name: &str, node: &str, model: &str) -> String {
        let spec = json!({"deviceModelRef": {"name": model}, "nodeName": node, "protocol": {"protocolName": "lab"},
            "properties": [{"name": "temp"}, {"name": "led", "desired": {"value": "ON"}}]});
        let object = json!({"apiVersion": "devices.kubeedge.io/v1beta1", "kind": "Device", "metadata": {"name": name},
            "spec": spec});
        let made = self.devices().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await;
        made.unwrap().uid().unwrap()
    }

    pub(super) async fn patch(&self, name: &str, patch: Value) {
        self.devices().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(super) async fn delete(&self, name: &str) {
        self.devices().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// The DeviceStatus of a Device, if there is one.
    pub(super) async fn status(&self, name: &str) -> Option<Value> {
        let found = self.statuses().get_opt(name).await.unwrap();
        found.map(|found| serde_json::to_value(found).unwrap())
    }

    /// Waits until the DeviceStatus is deleted with its Device.
    pub(super) async fn until_collected(&self, name: &str) {
        eventually("the end of its status", || async { self.status(name).await.is_none() }).await;
    }
}

/// The reported value of a property; empty without one.
pub(super) fn reported<'a>(status: &'a Value, property: &str) -> &'a str {
    let twins = status["status"]["twins"].as_array().into_iter().flatten();
    let twin = twins.into_iter().find(|twin| twin["propertyName"] == property);
    twin.and_then(|twin| twin["reported"]["value"].as_str()).unwrap_or_default()
}

/// A report of a device, with times that increase with `seq`.
pub(super) fn report(name: &str, uid: &str, seq: u64, values: &[(&str, &str)]) -> DeviceReport {
    let twin = |(property, value): &(&str, &str)| TwinReport {
        property: (*property).to_owned(),
        reported: Some(TwinValue {
            value: (*value).to_owned(),
            at_ms: 1_700_000_000_000_u64.saturating_add(seq),
            kind: "float".into(),
            ..TwinValue::default()
        }),
        observed: None,
    };
    DeviceReport {
        namespace: "default".into(),
        name: name.into(),
        uid: uid.into(),
        seq,
        state: None,
        twins: values.iter().map(twin).collect(),
    }
}

pub(super) fn online(report: DeviceReport) -> DeviceReport {
    let state =
        DeviceState { state: "online".into(), last_online: "2026-03-01T10:00:00Z".into(), ..DeviceState::default() };
    DeviceReport { state: Some(state), ..report }
}
