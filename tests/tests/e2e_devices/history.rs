//! Earlier values of a device, read on the device: after restarts of all programs, and without a cloud.

use std::time::Duration;

use sampan_tests::can_run;
use sampan_tests::process::signal;
use sampan_tests::wait::until;
use serde_json::{Value, json};

use super::off::helpers;
use super::{Site, device, model};

/// The values of a property in its history.
fn values(site: &Site, property: &str) -> Result<Vec<String>, String> {
    let id = format!("{}/t1", site.kubectl().namespace);
    let text = site.node.edge(&["devices", "history", &id, property, "--json"])?;
    let history: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let changes = history["properties"][0]["changes"].as_array().into_iter().flatten();
    Ok(changes.filter_map(|change| change["value"].as_str()).map(str::to_owned).collect())
}

fn wait_values(site: &Site, wanted: &[&str]) {
    until(Duration::from_secs(20), "the history", || match values(site, "temp")? {
        found if found == wanted => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn a_history_outlives_helper_daemon_and_cloud() {
    if !can_run() {
        return;
    }
    let mut site = Site::start("devices-history");
    let node = site.node.name.clone();
    let mut object = device("t1", &node, "");
    object["metadata"]["annotations"] = json!({"sampan.dev/history": "plenty"});
    site.kubectl().apply_all(&[model(), object.clone()]);
    let refused = site.kubectl().wait_event("t1", "HistoryRefused");
    assert!(refused.contains("\"plenty\" is no number from 0 to 1000"), "{refused}");
    object["metadata"]["annotations"] = json!({"sampan.dev/history": "3"});
    site.kubectl().apply(&object.to_string());
    wait_values(&site, &[]);
    for value in ["1", "2", "2", "3", "4"] {
        site.report("t1", "temp", value);
    }
    wait_values(&site, &["2", "3", "4"]);
    let id = format!("{}/t1", site.kubectl().namespace);
    let table = site.node.edge_ok(&["devices", "history", &id]);
    assert!(table.starts_with("TIME ") && table.lines().count() == 4, "{table}");

    // A helper that is stopped passes its values to the next one.
    site.cluster.kill_bridge();
    for name in ["TERM", "KILL"] {
        let before = helpers(site.node.root()).first().copied().expect("the helper runs");
        signal(before, name);
        until(Duration::from_secs(20), "another helper", || match helpers(site.node.root()).first() {
            Some(pid) if *pid != before => Ok(()),
            other => Err(format!("{other:?}")),
        });
        wait_values(&site, &["2", "3", "4"]);
    }
    // All programs at once, as at a reboot.
    site.node.kill();
    signal(helpers(site.node.root()).first().copied().expect("the helper runs"), "KILL");
    site.node.start();
    wait_values(&site, &["2", "3", "4"]);
    // Send repeatedly, as devices do: a new helper may not be connected yet, and the broker stores nothing for it.
    until(Duration::from_secs(20), "a new value", || {
        site.report("t1", "temp", "5");
        match values(&site, "temp")? {
            found if found == ["3", "4", "5"] => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}
