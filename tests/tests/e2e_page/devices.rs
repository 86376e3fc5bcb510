//! Devices with their values: the worst first, a filter in the address, hostile text, and a new value.

use sampan_tests::Kubectl;
use serde_json::{Value, json};

use super::HOSTILE;
use super::api::Api;
use super::browser::Browser;

/// Makes the kinds known, and a valve that fits its desired value, a meter that never reported, and a pump whose node is
/// silent.
pub(crate) fn create(api: &mut Api, kubectl: &Kubectl) {
    let file = format!("{}/../deploy/bridge/devices/crds.yaml", env!("CARGO_MANIFEST_DIR"));
    let _ = kubectl.ok(&["apply", "-f", &file]);
    let _ = kubectl.ok(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]);
    let namespace = &kubectl.namespace;
    for (name, node, property) in
        [("valve", "edge-00001", "position"), ("meter", "edge-00002", "level"), ("pump", "edge-00001", "speed")]
    {
        let spec = json!({"deviceModelRef": {"name": HOSTILE.replace(' ', "-")}, "nodeName": node,
            "properties": [{"name": property, "desired": {"value": "40"}}]});
        api.create(&of(namespace, "devices"), &object("Device", name, json!({ "spec": spec })));
    }
    for (name, property, value, stale) in [("valve", "position", "40", false), ("pump", "speed", HOSTILE, true)] {
        api.create(&of(namespace, "devicestatuses"), &object("DeviceStatus", name, json!({})));
        report(api, namespace, name, property, value, stale);
    }
}

fn of(namespace: &str, plural: &str) -> String {
    format!("/apis/devices.kubeedge.io/v1beta1/namespaces/{namespace}/{plural}")
}

fn object(kind: &str, name: &str, mut more: Value) -> Value {
    more["apiVersion"] = "devices.kubeedge.io/v1beta1".into();
    more["kind"] = kind.into();
    more["metadata"] = json!({ "name": name });
    more
}

/// Writes what the bridge writes when a node reports: a value of the time 2026-03-01T10:00:00Z.
fn report(api: &mut Api, namespace: &str, name: &str, property: &str, value: &str, stale: bool) {
    let metadata = json!({"timestamp": "1772359200000"});
    let status = json!({"state": "online", "extensions": {"sampan.dev": {"stale": stale}},
        "twins": [{"propertyName": property, "reported": {"value": value, "metadata": metadata}}]});
    let path = format!("{}/{name}/status", of(namespace, "devicestatuses"));
    let (code, answer) = api.ask("PATCH", &path, "application/merge-patch+json", &json!({ "status": status }));
    assert_eq!(code, 200, "{answer}");
}

pub(crate) fn devices_are_listed(browser: &mut Browser, api: &mut Api, kubectl: &Kubectl) {
    create(api, kubectl);
    browser.value("location.hash = '#/devices'").expect("a page");
    let rows = |count: usize| format!("document.querySelectorAll('#devices tbody tr').length === {count}");
    browser.wait("all devices are listed", &rows(3));
    let row = |at: usize| format!("document.querySelectorAll('#devices tbody tr')[{at}].textContent");
    for (at, texts) in [
        (0, &["pump", "edge-00001", "stale", "▲ wanted: 40", HOSTILE][..]),
        (1, &["meter", "edge-00002", "nothing reported"]),
        (2, &["valve", "edge-00001", "position 40"]),
    ] {
        for text in texts {
            let has = format!("{}.includes({})", row(at), json!(text));
            assert_eq!(browser.value(&has), Ok(json!(true)), "row {at} has {text}");
        }
    }
    assert_eq!(browser.value(&format!("{}.includes('wanted')", row(2))), Ok(json!(false)), "it is as wanted");
    let time = "document.querySelector('#devices tbody tr:last-child time').title";
    assert_eq!(browser.value(time), Ok(json!("2026-03-01T10:00:00Z")));
    assert_eq!(browser.value("document.images.length + document.scripts.length"), Ok(json!(1)), "text stays text");

    browser.key("/");
    browser.wait("the search has the focus", "document.activeElement.id === 'devices-search'");
    browser.text("node=edge-00001 is:stale");
    browser.wait("a filter finds one device", &rows(1));
    assert_eq!(browser.value("location.hash"), Ok(json!("#/devices?node=edge-00001%20is:stale")));
    browser.value("location.hash = '#edge-00002'").expect("a page");
    browser.wait("the page of a node links to its devices", "document.getElementById('devices-of') !== null");
    browser.value("document.getElementById('devices-of').click()").expect("a link");
    browser.wait("only these are listed", &format!("{} && {}.includes('meter')", rows(1), row(0)));

    report(api, &kubectl.namespace, "valve", "position", "41", false);
    browser.value("location.hash = '#/devices?valve'").expect("a page");
    browser.wait("a new value is read", &format!("{}.includes('position 41')", row(0)));
    browser.value("location.hash = ''").expect("a page");
}
