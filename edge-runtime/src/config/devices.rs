//! The `devices` and `runtimes` sections: names that pods may use, and what stands behind them on this board.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};

use super::error::Wrong;
use super::number::Number;
use crate::pod::extended_resources::is_extended;

/// Device nodes of one resource name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DeviceClass {
    /// Absolute paths below `/dev`; `*` and `?` within a part.
    #[serde(rename = "paths")]
    pub patterns: Vec<String>,
    /// How many containers may have one device at the same time.
    #[serde(default)]
    pub share: Number<u32, 1>,
    /// Access rights: letters of `rwm`.
    #[serde(default = "read_write", deserialize_with = "access")]
    pub access: String,
}

fn read_write() -> String {
    "rw".to_owned()
}

fn access<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_else(read_write))
}

/// An OCI runtime as it is called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Handler {
    #[serde(rename = "command")]
    pub program: PathBuf,
    /// Before the subcommand.
    #[serde(default)]
    pub args: Vec<String>,
}

/// A list of device nodes, or that with how they are given out.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DeviceFile {
    Paths(Vec<String>),
    Full(DeviceClass),
}

/// Checked device classes by resource name.
pub(super) fn devices(typed: BTreeMap<String, DeviceFile>) -> Result<BTreeMap<String, DeviceClass>, Wrong> {
    let mut classes = BTreeMap::new();
    for (name, file) in typed {
        let class = device(&name, file)?;
        classes.insert(name, class);
    }
    Ok(classes)
}

fn device(name: &str, file: DeviceFile) -> Result<DeviceClass, Wrong> {
    let wrong = |why: String| Err((format!("devices.{name}"), why));
    let part_ok = |part: &str| {
        !part.is_empty() && part.len() <= 63 && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    if !is_extended(name) || !name.split('/').all(part_ok) || name.matches('/').count() != 1 {
        return wrong("is no resource name like example.com/gpio".to_owned());
    }
    let class = match file {
        DeviceFile::Paths(patterns) => DeviceClass { patterns, share: Number::default(), access: read_write() },
        DeviceFile::Full(class) => class,
    };
    if let Some(path) = class.patterns.iter().find(|path| !path.starts_with("/dev/") || path.contains("..")) {
        return wrong(format!("{path:?} is no path below /dev"));
    }
    if class.patterns.is_empty() || *class.share == 0 {
        return wrong("needs at least one path, and share at least 1".to_owned());
    }
    if class.access.is_empty() || class.access.chars().any(|c| !"rwm".contains(c)) {
        return wrong(format!("access {:?} is not made of r, w and m", class.access));
    }
    Ok(class)
}

/// Checked handlers by name.
pub(super) fn runtimes(typed: BTreeMap<String, Handler>) -> Result<BTreeMap<String, Handler>, Wrong> {
    let name_ok = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    match typed.keys().find(|name| !name_ok(name)) {
        Some(name) => {
            Err((format!("runtimes.{name}"), "a handler is named by lower-case letters, digits and '-'".into()))
        }
        None => Ok(typed),
    }
}
