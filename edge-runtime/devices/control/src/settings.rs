//! The section `device-twin` of `config.yaml`. The helper owns it: the daemon passes on what was typed, and asks the helper's
//! program whether it is right. Opens nothing.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_path_to_error::Track;

use crate::{Address, Listen, Rules, Servicebus};

/// Maximum length of the folder: a path with the name of a socket has less than 108 bytes (unix(7)).
const LONGEST_FOLDER: usize = 80;
pub(crate) const MOST_NAMESPACES: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Settings {
    /// The broker that devices publish to; none for no MQTT.
    pub mqtt: Option<Mqtt>,
    /// DMI, for programs that drive devices (mappers); `None` turns it off.
    pub dmi: Option<Dmi>,
    /// Where devices find the node itself; none for nowhere.
    pub listen: Option<Listen>,
    /// Where programs on the device send requests for rules to; none for nowhere.
    pub servicebus: Option<Servicebus>,
    /// What rules may reach on this node.
    pub rules: Rules,
    pub report: Report,
    pub store: Store,
    /// Values must fit type, minimum and maximum of the model.
    pub check_values: CheckValues,
}

/// KubeEdge's eventbus in mode 2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Mqtt {
    /// `tcp://HOST:PORT` or `unix:///PATH`.
    pub broker: String,
    pub username: String,
    /// File with the password as its first line; read for each connection.
    pub password_file: String,
    /// `edge-devices-NODE` if it is empty.
    pub client_id: String,
}

/// KubeEdge's DMI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Dmi {
    /// Where `dmi.sock` is, and the sockets of mappers; an absolute path.
    pub folder: PathBuf,
    /// Namespaces of pods whose mappers may register and report; empty: all, and processes of the node.
    pub allow_namespaces: Vec<String>,
}

impl Default for Dmi {
    fn default() -> Self {
        Self { folder: "/etc/kubeedge".into(), allow_namespaces: Vec::new() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Report {
    /// Between two reports of one device.
    pub min_interval_seconds: u64,
    /// Reports of this node in a second.
    pub per_second: u32,
    /// Time after which an unchanged value is reported again, in seconds.
    pub unchanged_seconds: u64,
}

impl Default for Report {
    fn default() -> Self {
        Self { min_interval_seconds: 1, per_second: 10, unchanged_seconds: 600 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Store {
    /// Bytes of values that may be written in an hour without a link.
    pub writes_per_hour: u64,
    /// Bytes of messages for rules that wait for the bridge, and for how many seconds of running each of them may.
    pub messages: u64,
    pub message_ttl_seconds: u64,
}

impl Default for Store {
    fn default() -> Self {
        Self { writes_per_hour: 1 << 20, messages: 4 << 20, message_ttl_seconds: 86_400 }
    }
}

/// Whether values are checked against the model; true by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CheckValues(pub bool);

impl Default for CheckValues {
    fn default() -> Self {
        Self(true)
    }
}

/// The section with defaults, and its unknown keys, such as `device-twin.report.color`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    pub settings: Settings,
    pub unknown: Vec<String>,
}

impl Settings {
    /// # Errors
    /// `KEY: WHY`, the key as `device-twin.report.per-second`.
    pub fn read(typed: &Value) -> Result<Read, String> {
        // A path has `?` before an optional part.
        let named = |key: &str| format!("device-twin.{}", key.replace(".?", ""));
        let (mut path, mut unknown) = (Track::new(), Vec::new());
        let tracked = serde_path_to_error::Deserializer::new(typed, &mut path);
        let read = serde_ignored::deserialize(tracked, |key| unknown.push(named(&key.to_string())));
        let settings: Self = read.map_err(|error| match path.path().to_string() {
            path if path == "." => format!("device-twin: {error}"),
            path => format!("device-twin.{path}: {error}"),
        })?;
        settings.check()?;
        Ok(Read { settings, unknown })
    }

    fn check(&self) -> Result<(), String> {
        if let Some(mqtt) = &self.mqtt {
            Address::parse(&mqtt.broker).map_err(|why| format!("device-twin.mqtt.broker: {why}"))?;
            if !mqtt.password_file.is_empty() && mqtt.username.is_empty() {
                return Err("device-twin.mqtt.password-file: MQTT has no password without a username".to_owned());
            }
        }
        if let Some(Dmi { folder, allow_namespaces }) = &self.dmi {
            let fits = folder.is_absolute() && folder.as_os_str().len() < LONGEST_FOLDER;
            let wrong = || format!("device-twin.dmi.folder: must be an absolute path below {LONGEST_FOLDER} bytes");
            fits.then_some(()).ok_or_else(wrong)?;
            let wrong = allow_namespaces.iter().find(|name| !is_namespace(name));
            if let Some(name) = wrong.or_else(|| allow_namespaces.get(MOST_NAMESPACES)) {
                let why = format!("{name:?} is no name of a namespace, or one of more than {MOST_NAMESPACES}");
                return Err(format!("device-twin.dmi.allow-namespaces: {why}"));
            }
        }
        if let Some(listen) = &self.listen {
            listen.checked().map_err(|why| format!("device-twin.listen.{why}"))?;
        }
        if let Some(servicebus) = &self.servicebus {
            servicebus.checked().map_err(|why| format!("device-twin.servicebus.{why}"))?;
        }
        self.rules.checked().map_err(|why| format!("device-twin.rules.{why}"))?;
        let Report { min_interval_seconds, per_second, unchanged_seconds } = self.report;
        in_range("report.min-interval-seconds", min_interval_seconds, 0, 86_400)?;
        in_range("report.per-second", per_second.into(), 1, 1_000)?;
        in_range("report.unchanged-seconds", unchanged_seconds, 10, 604_800)?;
        let Store { writes_per_hour, messages, message_ttl_seconds } = self.store;
        in_range("store.messages", messages, 65_536, 1 << 30)?;
        in_range("store.message-ttl-seconds", message_ttl_seconds, 60, 31_536_000)?;
        in_range("store.writes-per-hour", writes_per_hour, 65_536, 1 << 40)
    }
}

/// A label of RFC 1123, as in the API.
pub(crate) fn is_namespace(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with('-') && !name.ends_with('-')
}

fn in_range(key: &str, value: u64, least: u64, most: u64) -> Result<(), String> {
    let fits = (least..=most).contains(&value);
    if fits { Ok(()) } else { Err(format!("device-twin.{key}: must be {least} to {most}")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(typed: &Value) -> Result<Settings, String> {
        Settings::read(typed).map(|read| read.settings)
    }

    #[test]
    fn empty_section_is_the_default_and_prints_the_same() {
        assert_eq!(read(&json!({})), Ok(Settings::default()));
        let typed = json!({"mqtt": {"broker": "tcp://a:1"}, "report": {"per-second": 3}, "check-values": false});
        let first = read(&typed);
        let again = first.clone().map(|read| serde_json::to_value(&read).unwrap_or_default());
        assert_eq!(again.and_then(|again| read(&again)), first);
        let dmi = read(&json!({"dmi": {}})).map(|read| read.dmi);
        assert_eq!(dmi, Ok(Some(Dmi::default())));
        let narrow = read(&json!({"dmi": {"allow-namespaces": ["devices", "a-1"]}})).map(|read| read.dmi);
        let dmi = Dmi { folder: "/etc/kubeedge".into(), allow_namespaces: vec!["devices".into(), "a-1".into()] };
        assert_eq!(narrow, Ok(Some(dmi)));
        assert_eq!(first.map(|read| (read.report.per_second, read.check_values)), Ok((3, CheckValues(false))));
    }

    #[test]
    fn unknown_keys_are_ignored_and_named() {
        let typed = json!({"mqtt": {"broker": "tcp://a:1", "brokers": "x"}, "color": {"a": 1}});
        let unknown = Settings::read(&typed).map(|read| read.unknown);
        assert_eq!(unknown, Ok(vec!["device-twin.color".to_owned(), "device-twin.mqtt.brokers".to_owned()]));
    }

    #[test]
    fn error_names_the_key() {
        for (typed, key) in [
            (json!("x"), "device-twin: "),
            (json!({"report": {"per-second": 0}}), "device-twin.report.per-second: must be 1 to 1000"),
            (json!({"report": {"per-second": "x"}}), "device-twin.report.per-second: invalid type"),
            (json!({"report": {"unchanged-seconds": 1}}), "device-twin.report.unchanged-seconds: "),
            (json!({"store": {"writes-per-hour": 10}}), "device-twin.store.writes-per-hour: "),
            (json!({"mqtt": {"broker": "127.0.0.1"}}), "device-twin.mqtt.broker: "),
            (json!({"mqtt": {}}), "device-twin.mqtt.broker: "),
            (json!({"mqtt": {"broker": "tcp://a:1", "password-file": "/x"}}), "device-twin.mqtt.password-file: "),
            (json!({"dmi": {"folder": "kubeedge"}}), "device-twin.dmi.folder: "),
            (json!({"dmi": {"folder": "/x".repeat(40)}}), "device-twin.dmi.folder: "),
            (json!({"dmi": {"allow-namespaces": ["A"]}}), "device-twin.dmi.allow-namespaces: "),
            (json!({"dmi": {"allow-namespaces": [""]}}), "device-twin.dmi.allow-namespaces: "),
            (json!({"dmi": {"allow-namespaces": vec!["a"; 65]}}), "device-twin.dmi.allow-namespaces: "),
            (json!({"dmi": {"allow-namespaces": "a"}}), "device-twin.dmi.allow-namespaces: invalid type"),
            (json!({"listen": {"address": "0.0.0.0:1884"}}), "device-twin.listen.address: "),
            (json!({"listen": {"users-file": "users"}}), "device-twin.listen.users-file: "),
            (json!({"servicebus": {"address": "0.0.0.0:9060"}}), "device-twin.servicebus.address: "),
            (json!({"rules": {"ports": [0]}}), "device-twin.rules.ports: "),
            (json!({"rules": {"ports": ["x"]}}), "device-twin.rules.ports[0]: "),
            (json!({"rules": {"topics": ["a/#/b"]}}), "device-twin.rules.topics: "),
            (json!({"rules": {"namespaces": ["A"]}}), "device-twin.rules.namespaces: "),
            (json!({"check-values": 1}), "device-twin.check-values: "),
        ] {
            let read = read(&typed);
            assert!(read.as_ref().is_err_and(|why| why.starts_with(key)), "{typed}: {read:?}");
        }
    }
}
