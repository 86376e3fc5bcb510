//! Pods of all nodes: the worst first, found by a counter, a part of their reason and a shared address.

use sampan_tests::manifest::{pod, shell};
use serde_json::{Value, json};

use super::HOSTILE;
use super::api::Api;
use super::browser::Browser;

/// Pods and what is written about each: its phase, and why its container waits. No program runs them, because their
/// nodes are only objects.
const PODS: [(&str, &str, &str, &str); 3] = [
    ("web-crashes", "edge-00001", "Running", "CrashLoopBackOff"),
    ("web-hostile", "edge-00002", "Pending", HOSTILE),
    ("web-done", "edge-00002", "Succeeded", ""),
];

fn create(api: &mut Api, namespace: &str) {
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    for (name, node, phase, reason) in PODS {
        api.create(&path, &pod(name, node, json!([shell("c", "exit 1")])));
        let state = if reason.is_empty() { json!({"running": {}}) } else { json!({"waiting": {"reason": reason}}) };
        let container =
            json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 3, "state": state});
        let status = json!({"status": {"phase": phase, "containerStatuses": [container]}});
        let (code, answer) =
            api.ask("PATCH", &format!("{path}/{name}/status"), "application/merge-patch+json", &status);
        assert_eq!(code, 200, "{answer}");
    }
}

pub(crate) fn pods_are_searched(browser: &mut Browser, api: &mut Api, namespace: &str, url: &str) {
    create(api, namespace);
    browser.value("location.hash = '/pods'").expect("a page");
    let rows = |count: usize| format!("document.querySelectorAll('#pods tbody tr').length === {count}");
    browser.wait("pods of all nodes are shown", &rows(PODS.len()));
    let counter =
        "[...document.querySelectorAll('#pods .states button')].find((one) => one.textContent === '2 not ready')";
    browser.value(&format!("{counter}.focus(), {counter}.click()")).expect("a counter");
    browser.wait("a counter filters", &rows(2));
    assert_eq!(browser.value("location.hash"), Ok(json!("#/pods?is:notready")));
    assert_eq!(browser.value(&format!("document.activeElement === {counter}")), Ok(json!(true)), "it keeps the focus");
    let shown = json!(HOSTILE.chars().take(40).collect::<String>());
    let hostile = browser.value(&format!("document.getElementById('pods').textContent.includes({shown})"));
    assert_eq!(hostile, Ok(json!(true)), "text stays text");

    browser.key("/");
    browser.wait("the search has the focus", "document.activeElement.id === 'pods-search'");
    browser.text("crashloop");
    browser.wait("a part of the reason is found", &rows(1));
    assert_eq!(browser.value("location.hash"), Ok(json!("#/pods?crashloop")));
    browser.go("about:blank");
    browser.go(&format!("{url}#/pods?node=edge-00002%20is:succeeded"));
    browser.wait("a shared address filters", &rows(1));
    let cells = "[...document.querySelectorAll('#pods tbody td')].slice(0, 4).map((cell) => cell.textContent)";
    let wanted: Value = json!([namespace, "web-done", "edge-00002", "Succeeded"]);
    assert_eq!(browser.value(cells), Ok(wanted));
    browser.value("document.querySelectorAll('#pods tbody a')[1].click()").expect("a link");
    browser.wait("its node is open", "document.getElementById('node').textContent.includes('web-hostile')");
    browser.value("location.hash = ''").expect("a page");
    browser.wait("all nodes are shown", "!document.getElementById('overview').hidden");
}
