//! Devices of a node: a sensor's value in `kubectl get devicestatus`, a desired value at the actuator, with real MQTT
//! clients and a real broker. Guarantees are D1 to D15 (docs/devices.md).

mod allowed;
mod broker;
mod faults;
mod history;
mod hostile;
mod mapper;
mod off;
mod order;
mod road;

use std::time::{Duration, Instant};

use sampan_tests::wait::until;
use sampan_tests::{Cluster, EdgeNode, Kubectl};
use serde_json::{Value, json};

use broker::Broker;

/// Maximum delay of a value without faults (D1, D8).
const SOON: Duration = Duration::from_secs(5);

/// A cluster with the definitions of devices, and one node with the broker of its devices.
struct Site {
    node: EdgeNode,
    broker: Broker,
    cluster: Cluster,
}

impl Site {
    fn start(test: &str) -> Self {
        let cluster = Cluster::start(test);
        install(&cluster);
        let broker = Broker::start(cluster.folder());
        let mut node = EdgeNode::prepare(&cluster, "edge");
        node.configure(&format!("device-twin: {{mqtt: {{broker: 'tcp://{}'}}}}\n", broker.address()));
        node.start();
        node.wait_ready();
        Self { node, broker, cluster }
    }

    fn kubectl(&self) -> &Kubectl {
        &self.cluster.kubectl
    }

    /// The MQTT topic of a device of the test's namespace.
    fn topic(&self, device: &str, rest: &str) -> String {
        format!("$hw/events/device/{}/{device}/{rest}", self.kubectl().namespace)
    }

    /// Publishes a value like a sensor.
    fn publish(&self, device: &str, twin: &Value) {
        let text = json!({"event_id": "7", "timestamp": 0, "twin": twin}).to_string();
        self.broker.publish(&self.topic(device, "twin/update"), &text);
    }

    fn report(&self, device: &str, property: &str, value: &str) {
        self.publish(device, &json!({property: {"actual": {"value": value}}}));
    }

    /// Waits until the API shows this value of the property; returns how long it took.
    fn wait_reported(&self, device: &str, property: &str, value: &str) -> Duration {
        let began = Instant::now();
        self.wait_twin(device, property, |twin| twin["reported"]["value"] == value);
        began.elapsed()
    }

    fn wait_twin(&self, device: &str, property: &str, accept: impl Fn(&Value) -> bool) -> Value {
        until(SOON, &format!("{device}'s {property}"), || {
            let status = self.kubectl().get("devicestatus", device)?;
            let twin = twin(&status, property);
            if accept(&twin) { Ok(twin) } else { Err(status["status"].to_string()) }
        })
    }
}

/// Installs the definitions of devices.
fn install(cluster: &Cluster) {
    let definitions = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/bridge/devices/crds.yaml");
    let _ = cluster.kubectl.ok(&["apply", "-f", definitions]);
    let names = ["devices", "devicemodels", "devicestatuses"].map(|name| format!("crd/{name}.devices.kubeedge.io"));
    let wait = ["wait", "--for=condition=Established", "--timeout=30s"];
    let _ = cluster.kubectl.ok(&wait.into_iter().chain(names.iter().map(String::as_str)).collect::<Vec<_>>());
}

fn twin(status: &Value, property: &str) -> Value {
    let twins = status["status"]["twins"].as_array().into_iter().flatten();
    twins.into_iter().find(|twin| twin["propertyName"] == property).cloned().unwrap_or_default()
}

fn model() -> Value {
    json!({
        "apiVersion": "devices.kubeedge.io/v1beta1", "kind": "DeviceModel", "metadata": {"name": "lab"},
        "spec": {"protocol": "lab", "properties": [
            {"name": "temp", "type": "FLOAT", "accessMode": "ReadOnly", "minimum": "-40", "maximum": "125", "unit": "C"},
            {"name": "led", "type": "STRING", "accessMode": "ReadWrite"},
        ]},
    })
}

fn device(name: &str, node: &str, led: &str) -> Value {
    json!({
        "apiVersion": "devices.kubeedge.io/v1beta1", "kind": "Device", "metadata": {"name": name},
        "spec": {
            "deviceModelRef": {"name": "lab"}, "nodeName": node,
            "protocol": {"protocolName": "lab", "configData": {"port": "/dev/ttyS0"}},
            "properties": [
                {"name": "temp", "reportToCloud": true},
                {"name": "led", "reportToCloud": true, "desired": {"value": led}},
            ],
        },
    })
}
