//! The board itself: supply and temperature.

use std::path::Path;

use edge_runtime::paths::Paths;
use sampan_sys::board::Sensors;

use crate::doctor::finding::Finding;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    under_voltage: Option<bool>,
    hot: Option<bool>,
    /// The hottest zone, in degrees.
    degrees: Option<i64>,
}

pub(crate) fn look(paths: &Paths) -> Facts {
    let sensors = Sensors::find(Path::new("/sys"), vec![paths.state()]);
    Facts { under_voltage: sensors.under_voltage(), hot: sensors.hot(false), degrees: degrees(Path::new("/sys")) }
}

/// Temperature of the hottest thermal zone, in thousandths of a degree.
pub(crate) fn degrees(sysfs: &Path) -> Option<i64> {
    let zones = std::fs::read_dir(sysfs.join("class/thermal")).ok()?.flatten();
    let read =
        |zone: std::fs::DirEntry| std::fs::read_to_string(zone.path().join("temp")).ok()?.trim().parse::<i64>().ok();
    zones.filter_map(read).max().map(|milli| milli / 1000)
}

pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let why = "the board slows down, and may stop or damage its card at any moment";
    match facts.under_voltage {
        Some(true) => {
            let cure =
                "use the board's own power supply and a short, thick cable; unplug what draws from its USB ports";
            found.push(Finding::warning("supply", "the board reports under-voltage", why, cure));
        }
        Some(false) => found.push(Finding::ok("supply", "no under-voltage")),
        None => {}
    }
    let at = facts.degrees.map(|degrees| format!("{degrees} °C")).unwrap_or_default();
    match facts.hot {
        Some(true) => {
            let cure = "give it air or a heat sink, and see what works so hard: edge-runtime top";
            found.push(Finding::warning("temperature", format!("the board is hot: {at}"), why, cure));
        }
        Some(false) => found.push(Finding::ok("temperature", at)),
        None => {}
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;
    use crate::doctor::finding::tests::{assert_fine, assert_found};

    #[test]
    fn low_voltage_and_heat_are_found() {
        let bad = judge(&Facts { under_voltage: Some(true), hot: Some(true), degrees: Some(86) });
        assert_found(&bad, "supply", Severity::Warning, "power supply");
        assert_found(&bad, "temperature", Severity::Warning, "heat sink");
        assert_fine(&judge(&Facts { under_voltage: Some(false), hot: Some(false), degrees: Some(50) }));
        assert!(judge(&Facts::default()).is_empty(), "a machine without sensors says nothing");
    }
}
