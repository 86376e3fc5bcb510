//! Devices (devices.kubeedge.io) and their last reported values as the page shows them: read from the API on request,
//! once for all requests within a few seconds. Bounded in number and in bytes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::board::cut;
use crate::bridge::requests::Requests;

const API: &str = "/apis/devices.kubeedge.io/v1beta1";
pub(super) const GROUP: &str = "devices.kubeedge.io";
/// Resources that are read: the devices, and what was reported of them.
pub(super) const RESOURCES: [&str; 2] = ["devices", "devicestatuses"];
/// Lifetime of an answer.
const FRESH: Duration = Duration::from_secs(5);
/// Objects of one request: a status may have some hundred kilobytes.
const PAGE: usize = 50;
/// Devices, properties of each one, and bytes of any text: no name is longer.
const MOST: (usize, usize, usize) = (1000, 32, 256);
/// Latest time that a browser can show, in milliseconds since 1970 (ECMA-262, 21.4.1.1). The script fails on later ones.
const LATEST: u64 = 8_640_000_000_000_000;
/// Bytes of all devices as JSON.
const ROOM: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Devices(Mutex<Option<(Instant, Bytes)>>);

impl Devices {
    /// The first devices by namespace and name, as JSON: `devices`, and whether there are `more`.
    ///
    /// # Errors
    /// The API does not answer, or refuses.
    pub(super) async fn read(&self, client: &Client) -> kube::Result<Bytes> {
        let mut kept = self.0.lock().await;
        if let Some((_, text)) = kept.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Ok(text.clone());
        }
        let (mut devices, mut order) = (HashMap::new(), Vec::new());
        let mut all = each(client, RESOURCES[0], |device| {
            let room = order.len() < MOST.0;
            if room {
                order.push(key(&device));
                devices.insert(key(&device), of_spec(&device));
            }
            room
        })
        .await?;
        let last = order.last().cloned().unwrap_or_default();
        if !last.is_empty() {
            // Both lists are in the same order.
            each(client, RESOURCES[1], |status| {
                let key = key(&status);
                if let Some(device) = devices.get_mut(&key).filter(|device| device.owns(&status)) {
                    report(device, &status["status"]);
                }
                key <= last
            })
            .await?;
        }
        let (mut room, mut shown) = (ROOM, Vec::new());
        for key in &order {
            let text = devices.get(key).map(Device::text).unwrap_or_default();
            let Some(left) = room.checked_sub(text.len() + 1) else {
                all = false;
                break;
            };
            room = left;
            shown.push(text);
        }
        let text = Bytes::from(format!(r#"{{"more":{},"devices":[{}]}}"#, !all, shown.join(",")));
        *kept = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

/// Passes each object to `take` until that returns false. Returns whether all were read. A kind that the API does not
/// have has no objects.
async fn each(client: &Client, plural: &str, take: impl FnMut(Value) -> bool) -> kube::Result<bool> {
    match Requests::new(client.clone()).each(&format!("{API}/{plural}"), "", PAGE, take).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
        read => read,
    }
}

/// The order of the API's lists.
fn key(object: &Value) -> String {
    let part = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    format!("{}/{}", part("namespace"), part("name"))
}

/// What is shown of one device.
struct Device {
    namespace: String,
    name: String,
    node: String,
    model: String,
    uid: String,
    state: String,
    /// The node is silent: the values may be outdated.
    stale: bool,
    properties: Vec<Property>,
    /// Properties that are not shown.
    more: usize,
}

struct Property {
    name: String,
    desired: Option<String>,
    value: Option<String>,
    /// Milliseconds since 1970, at most [`LATEST`]; none if the node's clock was not set.
    at: Option<u64>,
}

impl Device {
    /// Whether a status is of this device, not of an earlier one of its name.
    fn owns(&self, status: &Value) -> bool {
        let owners = status["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let mut of_devices = owners.filter(|owner| owner["kind"] == "Device").peekable();
        of_devices.peek().is_none() || of_devices.any(|owner| owner["uid"] == *self.uid)
    }

    fn text(&self) -> String {
        let properties = self.properties.iter().map(|one| json!([one.name, one.desired, one.value, one.at]));
        let device = json!({
            "namespace": self.namespace, "name": self.name, "node": self.node, "model": self.model, "state": self.state,
            "stale": self.stale, "properties": properties.collect::<Vec<_>>(), "more": self.more,
        });
        device.to_string()
    }
}

/// A device of which nothing is reported.
fn of_spec(object: &Value) -> Device {
    let (meta, spec) = (&object["metadata"], &object["spec"]);
    let all = spec["properties"].as_array().map(Vec::as_slice).unwrap_or_default();
    let properties = all.iter().take(MOST.1).map(|one| Property {
        name: text(&one["name"]),
        desired: one["desired"]["value"].as_str().map(|_| text(&one["desired"]["value"])),
        value: None,
        at: None,
    });
    Device {
        namespace: text(&meta["namespace"]),
        name: text(&meta["name"]),
        node: text(&spec["nodeName"]),
        model: text(&spec["deviceModelRef"]["name"]),
        uid: text(&meta["uid"]),
        state: String::new(),
        stale: false,
        properties: properties.collect(),
        more: all.len().saturating_sub(MOST.1),
    }
}

/// Adds what the node reported, see `bridge/devices/status.rs`.
fn report(device: &mut Device, status: &Value) {
    device.state = text(&status["state"]);
    device.stale = status["extensions"]["sampan.dev"]["stale"] == true;
    for twin in status["twins"].as_array().into_iter().flatten() {
        let Some(property) = device.properties.iter_mut().find(|one| twin["propertyName"] == *one.name) else {
            continue;
        };
        let (reported, meta) = (&twin["reported"], &twin["reported"]["metadata"]);
        property.value = reported["value"].as_str().map(|_| text(&reported["value"]));
        let at = meta["timestamp"].as_str().and_then(|at| at.parse::<u64>().ok());
        property.at = at.filter(|at| (1..=LATEST).contains(at) && meta["clock"] != "unsynchronized");
    }
}

fn text(value: &Value) -> String {
    cut(value.as_str().unwrap_or_default(), MOST.2).to_owned()
}

#[cfg(test)]
mod tests;
