//! The listener with clients of paho-mqtt: 60 of them that report ten times a second and are cut at random, keep-alive, wills,
//! retained messages, wildcards, QoS 1 that is sent again, another version.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sampan_devices_control::{FromHelper, Kind, Settings, ToHelper};
use serde_json::json;
use support::{Broker, Helper, model};

const CLIENTS: usize = 60;

/// Where `paho/requirements.txt` is installed.
fn packages() -> PathBuf {
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/paho");
    let packages = std::env::var_os("SAMPAN_PAHO").map_or(usual, PathBuf::from);
    assert!(packages.join("paho").is_dir(), "paho-mqtt is to be in {}: see requirements.txt", packages.display());
    packages
}

#[test]
fn clients_of_paho_lose_nothing_though_they_are_cut() {
    let broker = Broker::none();
    let settings: Settings = broker.settings();
    let mut helper = Helper::start(&settings);
    helper.object(Kind::DeviceModel, "lab", "model-1", model());
    for n in 0..CLIENTS {
        let body = json!({"spec": {"deviceModelRef": {"name": "lab"}, "properties": [{"name": "led"}]}});
        helper.object(Kind::Device, &format!("d{n}"), &format!("device-{n}"), body);
    }
    helper.told();
    broker.wait();
    let mut clients = Command::new("python3");
    clients.env("PYTHONPATH", packages()).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
    clients.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/paho/clients.py"));
    clients.args([broker.port.to_string(), CLIENTS.to_string(), "10".to_owned()]);
    let mut clients = clients.spawn().expect("python3 is installed");
    // The daemon continues meanwhile.
    let mut batches = 0;
    let status = loop {
        if let Some(status) = clients.try_wait().expect("its child") {
            break status;
        }
        if let Some(FromHelper::Report { batch, .. }) = helper.soon() {
            helper.say(&ToHelper::Ack { batch, refused: Vec::new() });
            batches += 1;
        }
    };
    assert!(status.success(), "{status}");
    assert!(batches > 10, "{batches} reports");
}
