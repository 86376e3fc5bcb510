//! The `device-twin` section: whether devices behind this node are served, and how. Absent, nothing of it runs.

use sampan_devices_control as control;
use serde::{Deserialize, Serialize};

use super::number::Number;
use super::{Wrong, wrong};

/// What was typed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct DeviceTwinFile {
    /// The broker that devices publish to.
    pub mqtt: Option<control::Mqtt>,
    pub report: ReportFile,
    pub store: StoreFile,
    /// Values must fit type, minimum and maximum of their model.
    pub check_values: Option<bool>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ReportFile {
    /// Between two reports of one device.
    pub min_interval_seconds: Number<u64, 1>,
    /// Reports of all devices of this node.
    pub per_second: Number<u32, 10>,
    /// What has not changed is told again after so long.
    pub unchanged_seconds: Number<u64, 600>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct StoreFile {
    /// Bytes of reported values, without a link.
    pub writes_per_hour: Number<u64, { 1 << 20 }>,
}

impl DeviceTwinFile {
    /// What the helper is told.
    pub(super) fn checked(self) -> Result<control::Settings, Wrong> {
        if let Some(mqtt) = &self.mqtt {
            control::Address::parse(&mqtt.broker).map_err(|why| wrong("device-twin.mqtt.broker", why))?;
            if !mqtt.password_file.is_empty() && mqtt.username.is_empty() {
                return Err(wrong("device-twin.mqtt.password-file", "MQTT has no password without a username"));
            }
        }
        let in_range = |key: &str, value: u64, range: std::ops::RangeInclusive<u64>| match range.contains(&value) {
            true => Ok(value),
            false => Err(wrong(format!("device-twin.{key}"), format!("must be {} to {}", range.start(), range.end()))),
        };
        let ReportFile { min_interval_seconds, per_second, unchanged_seconds } = &self.report;
        let report = control::Report {
            min_interval_ms: in_range("report.min-interval-seconds", **min_interval_seconds, 0..=86_400)? * 1_000,
            per_second: u32::try_from(in_range("report.per-second", u64::from(**per_second), 1..=1_000)?).unwrap_or(1),
            unchanged_ms: in_range("report.unchanged-seconds", **unchanged_seconds, 10..=604_800)? * 1_000,
        };
        let writes_per_hour = in_range("store.writes-per-hour", *self.store.writes_per_hour, 65_536..=1 << 40)?;
        let check = if self.check_values.unwrap_or(true) { control::Check::On } else { control::Check::Off };
        Ok(control::Settings { mqtt: self.mqtt, report, store: control::Store { writes_per_hour }, check })
    }

    /// With defaults, to be printed.
    pub(super) fn filled(self) -> Self {
        Self { check_values: Some(self.check_values.unwrap_or(true)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<control::Settings, String> {
        let file: DeviceTwinFile = serde_yaml_ng::from_str(text).map_err(|error| error.to_string())?;
        file.checked().map_err(|(key, why)| format!("{key}: {why}"))
    }

    #[test]
    fn nothing_typed_is_the_default_of_the_helper() {
        assert_eq!(settings("{}"), Ok(control::Settings::default()));
    }

    #[test]
    fn brokers_are_named_by_host_and_port_or_path() {
        for good in
            ["tcp://127.0.0.1:1883", "tcp://[::1]:1883", "tcp://broker.local:8883", "unix:///run/mosquitto.sock"]
        {
            let made = settings(&format!("mqtt: {{broker: '{good}'}}"));
            assert_eq!(made.map(|made| made.mqtt.map(|mqtt| mqtt.broker)), Ok(Some(good.to_owned())));
        }
        for bad in
            ["", "127.0.0.1", "tcp://127.0.0.1", "tcp://:1883", "tcp://a:0", "tcp://u@h:1", "unix://x", "ssl://a:1"]
        {
            let made = settings(&format!("mqtt: {{broker: '{bad}'}}"));
            assert!(made.as_ref().is_err_and(|why| why.starts_with("device-twin.mqtt.broker: ")), "{bad}: {made:?}");
        }
    }

    #[test]
    fn numbers_out_of_range_and_unknown_keys_are_named() {
        for (text, key) in [
            ("report: {per-second: 0}", "device-twin.report.per-second: "),
            ("report: {unchanged-seconds: 1}", "device-twin.report.unchanged-seconds: "),
            ("store: {writes-per-hour: 10}", "device-twin.store.writes-per-hour: "),
            ("mqtt: {broker: 'tcp://a:1', password-file: /x}", "device-twin.mqtt.password-file: "),
            ("mqtt: {brokers: x}", "mqtt"),
        ] {
            assert!(settings(text).is_err_and(|why| why.starts_with(key)), "{text}: {:?}", settings(text));
        }
    }
}
