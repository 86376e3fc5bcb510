//! Names of boards: a pattern such as `gw-{serial}`, filled in with the hardware that a board reports. Pure.

use std::str::FromStr;

use ring::digest::{SHA256, digest};
use serde::Deserialize;

use crate::pki::encoding::hex;
use crate::pki::identity::is_node_name;

/// Longest name of a board: it is also the value of labels, as `kubernetes.io/hostname`.
const NAME_MAX: usize = 63;
/// Longest pattern, in bytes.
const PATTERN_MAX: usize = 128;
/// Longest text about the hardware, in bytes, and the number of its network addresses.
const TEXT_MAX: usize = 128;
const MACS_MAX: usize = 32;
/// Serial numbers that vendors leave in place of one, in lower case.
const PLACEHOLDERS: [&str; 15] = [
    "to be filled by o.e.m.",
    "default string",
    "system serial number",
    "serial number",
    "not specified",
    "not applicable",
    "none",
    "n/a",
    "unknown",
    "not available",
    "invalid",
    "empty",
    "123456789",
    "0123456789",
    "1234567890",
];
/// Machine id of an image before its first boot (systemd, machine-id(5)).
const NO_MACHINE: &str = "uninitialized";

/// What a board reports about itself. Nothing of it is proven.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hardware {
    /// Serial number: of the device tree, else of DMI; may be empty.
    pub serial: String,
    /// Permanent network addresses, six octets in hex with colons.
    pub mac: Vec<String>,
    /// Model, for people.
    pub model: String,
    /// The content of `/etc/machine-id`.
    pub machine_id: String,
}

impl Hardware {
    /// Checks lengths and characters. A person reads the texts: no other characters may change how a terminal shows them.
    ///
    /// # Errors
    /// Names the wrong field.
    pub fn check(&self) -> Result<(), String> {
        for (field, text) in [("serial", &self.serial), ("model", &self.model), ("machineId", &self.machine_id)] {
            if text.len() > TEXT_MAX || text.bytes().any(|byte| !matches!(byte, b' '..=b'~')) {
                return Err(format!("hardware.{field}: want up to {TEXT_MAX} characters of printable ASCII"));
            }
        }
        if self.mac.len() > MACS_MAX {
            return Err(format!("hardware.mac: want up to {MACS_MAX} addresses"));
        }
        match self.mac.iter().find(|mac| !is_mac(mac)) {
            Some(wrong) => Err(format!("hardware.mac: {wrong:?} is not an address like 02:00:5e:10:00:01")),
            None => Ok(()),
        }
    }

    /// The lowest network address, lower-case hex without colons.
    pub fn lowest_mac(&self) -> Option<String> {
        self.mac.iter().map(|mac| mac.replace(':', "").to_ascii_lowercase()).min()
    }

    /// What tells this board from others: the serial number. Some boards report zeros or a placeholder instead. Then it
    /// is the lowest network address, or without one the machine id, which boards of one card image may share.
    pub fn key(&self) -> Option<String> {
        let serial = self.serial.trim();
        let is_placeholder = || PLACEHOLDERS.contains(&serial.to_ascii_lowercase().as_str());
        // Nothing else of it is in a name.
        let is_blank = !serial.chars().any(|c| c.is_ascii_alphanumeric() && c != '0');
        if !is_blank && !is_placeholder() {
            return Some(serial.to_owned());
        }
        let id = self.machine_id.trim();
        self.lowest_mac().or_else(|| (!id.is_empty() && id != NO_MACHINE).then(|| id.to_owned()))
    }

    /// SHA-256 of [`key`](Self::key), lower-case hex: what a Node keeps of its hardware.
    pub fn digest(&self) -> Option<String> {
        self.key().map(|key| hex(digest(&SHA256, key.as_bytes()).as_ref()))
    }
}

fn is_mac(text: &str) -> bool {
    let mut parts = text.split(':');
    text.len() == 17 && parts.all(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// A pattern of names. Its variables are `{serial}`, `{mac}` and `{model}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pattern = Self(text.to_owned());
        if text.len() > PATTERN_MAX {
            return Err(format!("a pattern of names has up to {PATTERN_MAX} characters"));
        }
        if !text.contains("{serial}") && !text.contains("{mac}") {
            return Err(format!("{text:?}: a pattern of names contains {{serial}} or {{mac}}, as gw-{{serial}} does"));
        }
        let name = pattern.fill(|variable| match variable {
            "serial" | "mac" | "model" => Ok("a".to_owned()),
            other => Err(format!("{text:?}: {{{other}}} is none of {{serial}}, {{mac}} and {{model}}")),
        })?;
        if is_node_name(&name) {
            Ok(pattern)
        } else {
            Err(format!("{text:?}: names of nodes have lower-case letters, digits, '-' and '.' only"))
        }
    }
}

impl Pattern {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the board with this hardware.
    ///
    /// # Errors
    /// The hardware lacks what the pattern needs.
    pub fn name(&self, hardware: &Hardware) -> Result<String, String> {
        let lacks = |what: &str| format!("this board reports no {what}, which the pattern {} needs", self.0);
        let filled = self.fill(|variable| match variable {
            "serial" => hardware.key().ok_or_else(|| lacks("serial number")),
            "mac" => hardware.lowest_mac().ok_or_else(|| lacks("network address")),
            _ => Ok(hardware.model.clone()),
        })?;
        let name = shortened(filled.trim_matches(['-', '.']));
        if is_node_name(&name) { Ok(name) } else { Err(format!("{name:?}, from {}, is no name of a node", self.0)) }
    }

    /// The text with its variables filled in.
    fn fill(&self, value: impl Fn(&str) -> Result<String, String>) -> Result<String, String> {
        let (mut name, mut rest) = (String::new(), self.0.as_str());
        while let Some((before, after)) = rest.split_once('{') {
            let Some((variable, tail)) = after.split_once('}') else {
                return Err(format!("{:?}: a brace is not closed", self.0));
            };
            name.push_str(before);
            name.extend(value(variable)?.chars().map(plain));
            rest = tail;
        }
        name.push_str(rest);
        Ok(name)
    }
}

fn plain(c: char) -> char {
    if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }
}

/// Cuts a name that is too long, and adds a digest of all of it: two long serial numbers may differ at their ends only.
fn shortened(name: &str) -> String {
    if name.len() <= NAME_MAX {
        return name.to_owned();
    }
    let mark = hex(&digest(&SHA256, name.as_bytes()).as_ref()[..5]);
    // ASCII, so every index is the edge of a character.
    let begin = name[..NAME_MAX - 1 - mark.len()].trim_end_matches(['-', '.']);
    format!("{begin}-{mark}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(serial: &str) -> Hardware {
        Hardware {
            serial: serial.into(),
            mac: vec!["dc:a6:32:00:00:02".into(), "B8:27:EB:00:00:01".into()],
            model: "Raspberry Pi 4 Model B Rev 1.2".into(),
            machine_id: "0f".repeat(16),
        }
    }

    fn name(pattern: &str, hardware: &Hardware) -> Result<String, String> {
        pattern.parse::<Pattern>().unwrap().name(hardware)
    }

    #[test]
    fn name_is_filled_in_from_the_hardware() {
        let board = board("10000000ABCD1234");
        assert_eq!(name("gw-{serial}", &board).unwrap(), "gw-10000000abcd1234");
        assert_eq!(name("{model}.{mac}", &board).unwrap(), "raspberry-pi-4-model-b-rev-1-2.b827eb000001");
        let vendor = Hardware { serial: " VMware-56 4d/81 ".into(), ..Hardware::default() };
        assert_eq!(name("{serial}", &vendor).unwrap(), "vmware-56-4d-81");
        assert!(name("gw-{mac}", &vendor).unwrap_err().contains("reports no network address"));
    }

    #[test]
    fn board_without_a_serial_number_is_known_by_its_address() {
        for serial in ["", "0000000000000000", "To Be Filled By O.E.M.", "Default string", "00-00", "***", "\u{e9}"] {
            assert_eq!(name("gw-{serial}", &board(serial)).unwrap(), "gw-b827eb000001", "{serial:?}");
        }
        let bare = Hardware { machine_id: "ab12".into(), ..Hardware::default() };
        assert_eq!(name("gw-{serial}", &bare).unwrap(), "gw-ab12");
        let image = Hardware { machine_id: "uninitialized".into(), ..Hardware::default() };
        for none in [Hardware::default(), image] {
            assert!(name("gw-{serial}", &none).unwrap_err().contains("reports no serial"));
        }
        assert_ne!(board("1").digest(), board("2").digest());
        assert_eq!(board("0000").digest(), board("").digest());
    }

    #[test]
    fn long_names_are_cut_and_stay_different() {
        let long = |end: &str| name("gw-{serial}", &board(&format!("{}{end}", "s".repeat(80)))).unwrap();
        assert_eq!(long("1").len(), NAME_MAX);
        assert_ne!(long("1"), long("2"));
    }

    #[test]
    fn pattern_tells_boards_apart_and_names_nodes() {
        for good in ["{serial}", "gw-{mac}", "{model}-{serial}.site-1"] {
            good.parse::<Pattern>().unwrap();
        }
        for bad in ["", "gw", "gw-{model}", "Gw-{serial}", "gw {serial}", "{serial}{", "{serial}-{host}", "-{serial}"] {
            bad.parse::<Pattern>().unwrap_err();
        }
        assert!(
            "x".repeat(120).parse::<Pattern>().is_err()
                && format!("{}{{mac}}", "x".repeat(124)).parse::<Pattern>().is_err()
        );
    }

    #[test]
    fn reported_hardware_is_bounded() {
        board("1").check().unwrap();
        for bad in [
            Hardware { serial: "1".repeat(129), ..Hardware::default() },
            Hardware { model: "a\nb".into(), ..Hardware::default() },
            Hardware { serial: "1\u{202e}2".into(), ..Hardware::default() },
            Hardware { mac: vec!["02005e100001".into()], ..Hardware::default() },
            Hardware { mac: vec!["02:00:5e:10:00:0g".into()], ..Hardware::default() },
            Hardware { mac: vec!["02:00:5e:10:00:01".into(); 33], ..Hardware::default() },
        ] {
            bad.check().unwrap_err();
        }
    }
}
