//! The mapper accepts the manifests beside this crate.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use support::node::{Node, be_the_helper};
use support::{Mapper, wait};

/// Not a test by itself: the helper's process is this program, which starts here.
#[test]
fn the_helper() {
    be_the_helper();
}

#[test]
fn every_device_of_the_examples_is_driven() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = Node::start(folder.path());
    let mut devices = Vec::new();
    for file in ["onewire", "gpio", "modbus"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file).with_extension("yaml");
        for document in std::fs::read_to_string(path).unwrap().split("\n---\n") {
            let mut body: Value = serde_yaml_ng::from_str(document).unwrap();
            let name = body["metadata"]["name"].as_str().unwrap().to_owned();
            let kind = body["kind"].as_str().unwrap().to_owned();
            let metadata = body["metadata"].as_object_mut().unwrap();
            metadata.insert("namespace".into(), json!("default"));
            metadata.insert("uid".into(), json!(format!("{kind}-{name}")));
            match kind.as_str() {
                "DeviceModel" => node.model(body),
                "Device" => {
                    devices.push(name);
                    node.device(body);
                }
                other => panic!("{other}"),
            }
        }
    }
    assert_eq!(devices, ["cellar", "front-door", "boiler-1", "boiler-2"]);
    let protocols = ["--protocol", "onewire", "--protocol", "gpio", "--protocol", "modbus"];
    let mapper = Mapper::start(folder.path(), &protocols);
    for name in devices {
        wait(&name, || (mapper.logged(&format!("default/{name} is driven")) == 1).then_some(()));
    }
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(node.seen.lock().unwrap().events, []);
}
