//! The settings of the helper, as they stand in `config.yaml` under `device-twin`, checked by the daemon.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Settings {
    /// The broker that devices publish to; none for no MQTT.
    pub mqtt: Option<Mqtt>,
    pub report: Report,
    pub store: Store,
    /// Values must fit type, minimum and maximum of the model.
    pub check: Check,
}

/// KubeEdge's eventbus in mode 2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Mqtt {
    /// `tcp://HOST:PORT` or `unix:///PATH`.
    pub broker: String,
    pub username: String,
    /// Of a file with the password as its first line; read with each connection.
    pub password_file: String,
    /// `edge-devices-NODE` if it is empty.
    pub client_id: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Report {
    /// Between two reports of one device, milliseconds.
    pub min_interval_ms: u64,
    /// Reports of this node in a second.
    pub per_second: u32,
    /// A value that has not changed is told again after so long, milliseconds.
    pub unchanged_ms: u64,
}

impl Default for Report {
    fn default() -> Self {
        Self { min_interval_ms: 1_000, per_second: 10, unchanged_ms: 600_000 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Store {
    /// Bytes of values that may be written in an hour without a link.
    pub writes_per_hour: u64,
}

impl Default for Store {
    fn default() -> Self {
        Self { writes_per_hour: 1 << 20 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    #[default]
    On,
    Off,
}
